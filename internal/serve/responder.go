package serve

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// failureObserver is a responder that is told of the Status that it is about to send: it keeps a
// record of the answer.
type failureObserver interface{ failed(s *metav1.Status) }

// observeFailure shows a Status to the responder that sends it, if it wants to see it.
func observeFailure(w responder, s *metav1.Status) {
	if o, ok := w.(failureObserver); ok {
		o.failed(s)
	}
}

// closeBody closes a body that is an io.Closer.
func closeBody(body io.WriterTo) error {
	if c, ok := body.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// failureForm is how a Status is written. The zero value is compact JSON.
type failureForm struct {
	format   object.Format
	indented bool
}

// answerHeaders sets what every answer of this proxy begins with (W-3).
func answerHeaders(w responder, contentType string) {
	w.header(auditID, answerAuditID(w.requested(auditID)))
	w.header("Cache-Control", "no-cache, private")
	w.header("Content-Type", contentType)
}

// writeStatus answers with s as upstream would: compact JSON and one LF, its Audit-Id and Cache-Control (W-3, W-170). On HEAD
// the headers stay and the body is dropped, as upstream does.
func writeStatus(w responder, s *metav1.Status) {
	observeFailure(w, s)
	answerHeaders(w, "application/json")
	statusHeaders(s, w.header)
	w.send(int(s.Code), statusBody(s))
}

// writeFailure is writeStatus in the form that the client understands (W-10).
func writeFailure(w responder, form failureForm, s *metav1.Status) {
	observeFailure(w, s)
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

// writeBug is the answer to a request that ran into a bug of the proxy.
func writeBug(w responder) {
	writeStatus(w, newStatus(http.StatusInternalServerError, "InternalError", "this request ran into a bug of the proxy", nil))
}

// retrySpread is the number of seconds over which clients are spread that are to try again, so that
// they do not return as one herd.
const retrySpread = 5

// retryAfter is the number of seconds after which a client is to try again whose request cannot be
// served now, as many others cannot. It is not the same for all.
func retryAfter() int { return 1 + rand.IntN(retrySpread) } // #nosec G404 -- spreads times

// writeLimited answers a request that flow control refused: 429 in flow control's words, or, while
// the proxy stops, 503 and the end of the connection.
func writeLimited(w responder, form failureForm, stopping bool, after time.Duration) {
	if stopping {
		w.hangUp()
		writeFailure(w, form, statusShuttingDown())
		return
	}
	writeTooManyRequests(w, int(after/time.Second))
}

// statusOf is what upstream answers for an error of its own code: the Status that the error brings, or else a 500 that gives
// no reason (W-27, W-170).
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		return newStatus(http.StatusInternalServerError, "", err.Error(), nil)
	}
	s := known.Status()
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &s
}
