package serve

import (
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/codec"
	"spillway/internal/object"
)

// responder is where the one answer to a request is written: a fasthttp response, or one of net/http. What an answer says is
// decided above it, once for both; what it does to a connection is decided below.
//
// Exactly one of send and stream is called, once, after the headers are set.
type responder interface {
	// requested is the first value of a header of the request.
	requested(key string) string
	// header sets a header of the answer.
	header(key, value string)
	// send answers with a body that is at hand. The client must take it at any pace at all.
	send(code int, body []byte)
	// stream answers with a body that is made while it is written and keeps old state alive
	// meanwhile, so if it is large it is a pin, and waits for its seat. size is its length in
	// bytes, -1 if that is known only at its end. A body that is an io.Closer is closed when it is
	// written, or cannot be.
	stream(code int, body io.WriterTo, size int64)
	// hangUp closes the connection after the answer, where it may not be trusted with another request.
	hangUp()
}

// large tells the bodies that are not written at once.
func large(size int64) bool { return size < 0 || size > 64<<10 }

// pinnedBy is what a large body of so many bytes keeps alive.
func pinnedBy(size int64) int64 { return max(size, leastWidth) }

// answerHeaders sets what every answer of this proxy begins with (W-3).
func answerHeaders(w responder, contentType string) {
	w.header(auditID, answerAuditID(w.requested(auditID)))
	w.header("Cache-Control", "no-cache, private")
	w.header("Content-Type", contentType)
}

// writeStatus answers with s as upstream would: compact JSON and one LF, its Audit-Id and Cache-Control (W-3, W-170). On HEAD
// the headers stay and the body is dropped, as upstream does.
func writeStatus(w responder, s *metav1.Status) {
	recordOf(w).failed(s)
	answerHeaders(w, "application/json")
	statusHeaders(s, w.header)
	w.send(int(s.Code), statusBody(s))
}

// writeFailure is writeStatus in the form that the client understands (W-10).
func writeFailure(w responder, form failureForm, s *metav1.Status) {
	recordOf(w).failed(s)
	body, err := codec.Status(form.format, s)
	switch {
	case err != nil: // of a struct of strings and numbers: it does not happen
		form, body = failureForm{}, statusBody(s)
	case form.indented:
		body, _ = codec.Indent(body) // as valid as json.Marshal made it
	case form.format == object.JSON:
		body = append(body, '\n')
	}
	answerHeaders(w, object.Encoding{Format: form.format}.MediaType())
	statusHeaders(s, w.header)
	w.send(int(s.Code), body)
}

// writeTooManyRequests answers 429 in the words of upstream's flow control; retryAfter is in seconds (W-180).
func writeTooManyRequests(w responder, retryAfter int) {
	answerHeaders(w, "text/plain; charset=utf-8")
	w.header("Retry-After", strconv.Itoa(retryAfter))
	w.header("X-Content-Type-Options", "nosniff")
	w.send(http.StatusTooManyRequests, []byte(tooManyRequests))
}

// writeMalformed answers a request that net/http, and so upstream, would not even parse, and closes the connection.
func writeMalformed(w responder, why string) {
	w.hangUp()
	answerHeaders(w, "text/plain; charset=utf-8")
	w.send(http.StatusBadRequest, []byte("400 Bad Request: "+why))
}
