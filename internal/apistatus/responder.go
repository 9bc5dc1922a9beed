package apistatus

import (
	"bytes"
	"encoding/json"
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

// Responder is where the one answer to a request is written: a fasthttp response, or one of
// net/http. What an answer says is decided above it, once for both; what it does to a connection is
// decided below.
//
// Exactly one of send and stream is called, once, after the headers are set.
type Responder interface {
	// RequestHeader is the first value of a header of the request.
	RequestHeader(key string) string
	// SetHeader sets a header of the answer.
	SetHeader(key, value string)
	// Send answers with a body that is at hand. The client must take it at any pace at all.
	Send(code int, body []byte)
	// Stream answers with a body that is made while it is written and keeps old state alive
	// meanwhile, so if it is large it is a pin, and waits for its seat. size is its length in
	// bytes, -1 if that is known only at its end. A body that is an io.Closer is closed when it is
	// written, or cannot be.
	Stream(code int, body io.WriterTo, size int64)
	// HangUp closes the connection after the answer, where it may not be trusted with another request.
	HangUp()
}

// FailureObserver is a responder that keeps a record of the answer. It receives the Status before
// it is sent.
type FailureObserver interface{ ObserveFailure(s *metav1.Status) }

// observeFailure shows a Status to the responder that sends it, if it wants to see it.
func observeFailure(w Responder, s *metav1.Status) {
	if o, ok := w.(FailureObserver); ok {
		o.ObserveFailure(s)
	}
}

// CloseBody closes a body that is an io.Closer.
func CloseBody(body io.WriterTo) error {
	if c, ok := body.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// StatusFormat is how a Status is written. The zero value is compact JSON.
type StatusFormat struct {
	Format   object.Format
	Indented bool
}

// SetCommonHeaders sets what every answer of this proxy begins with (W-3).
func SetCommonHeaders(w Responder, contentType string) {
	w.SetHeader(AuditIDHeader, AuditIDFor(w.RequestHeader(AuditIDHeader)))
	w.SetHeader("Cache-Control", "no-cache, private")
	w.SetHeader("Content-Type", contentType)
}

// Write answers with s as upstream would: compact JSON and one LF, its Audit-Id and Cache-Control
// (W-3, W-170). On HEAD the headers stay and the body is dropped, as upstream does.
func Write(w Responder, s *metav1.Status) {
	observeFailure(w, s)
	SetCommonHeaders(w, "application/json")
	statusHeaders(s, w.SetHeader)
	w.Send(int(s.Code), Body(s))
}

// WriteAs is Write in the form that the client understands (W-10).
func WriteAs(w Responder, form StatusFormat, s *metav1.Status) {
	observeFailure(w, s)
	body, err := codec.Status(form.Format, s)
	switch {
	case err != nil: // of a struct of strings and numbers: it does not happen
		form, body = StatusFormat{}, Body(s)
	case form.Indented:
		var indented bytes.Buffer
		_ = json.Indent(&indented, body, "", "  ") // as valid as json.Marshal made it
		body = indented.Bytes()
	case form.Format == object.JSON:
		body = append(body, '\n')
	}
	SetCommonHeaders(w, object.Encoding{Format: form.Format}.MediaType())
	statusHeaders(s, w.SetHeader)
	w.Send(int(s.Code), body)
}

// WriteTooManyRequests answers 429 in the words of upstream's flow control; retryAfter is in
// seconds (W-180).
func WriteTooManyRequests(w Responder, retryAfter int) {
	SetCommonHeaders(w, "text/plain; charset=utf-8")
	w.SetHeader("Retry-After", strconv.Itoa(retryAfter))
	w.SetHeader("X-Content-Type-Options", "nosniff")
	w.Send(http.StatusTooManyRequests, []byte(TooManyRequestsText))
}

// WriteMalformed answers a request that net/http, and so upstream, would not even parse, and closes
// the connection.
func WriteMalformed(w Responder, why string) {
	w.HangUp()
	SetCommonHeaders(w, "text/plain; charset=utf-8")
	w.Send(http.StatusBadRequest, []byte("400 Bad Request: "+why))
}

// WriteInternalError is the answer to a request that ran into a bug of the proxy.
func WriteInternalError(w Responder) {
	Write(w, New(http.StatusInternalServerError, "InternalError", "this request ran into a bug of the proxy", nil))
}

// RetrySpread is the number of seconds over which clients are spread that are to try again, so that
// they do not return as one herd.
const RetrySpread = 5

// RetryAfter is the number of seconds after which a client is to try again whose request cannot be
// served now, as many others cannot. It is not the same for all.
func RetryAfter() int { return 1 + rand.IntN(RetrySpread) } // #nosec G404 -- spreads times

// WriteLimited answers a request that flow control refused: 429 in flow control's words, or, while
// the proxy stops, 503 and the end of the connection.
func WriteLimited(w Responder, form StatusFormat, stopping bool, after time.Duration) {
	if stopping {
		w.HangUp()
		WriteAs(w, form, ShuttingDown())
		return
	}
	WriteTooManyRequests(w, int(after/time.Second))
}

// Of is what upstream answers for an error of its own code: the Status that the error brings, or
// else a 500 that gives no reason (W-27, W-170).
func Of(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		return New(http.StatusInternalServerError, "", err.Error(), nil)
	}
	s := known.Status()
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &s
}
