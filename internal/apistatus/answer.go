package apistatus

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/codec"
	"spillway/internal/object"
)

// Answer is an answer that is made here. What it says is decided first, and Write is the only
// function that writes it.
//
// Example: Failure(Unauthorized()) has code 401, a Status as its body, and the fields Cache-Control
// and Content-Type.
type Answer struct {
	Code   int
	Fields [][2]string // header fields beside Audit-Id, which Write sets
	Body   []byte      // unless there is a Stream
	// Stream makes the body while it is written; nil: there is a Body. Size is its length in bytes, -1
	// if that is known only at its end. An io.Closer is closed once it is written, or cannot be.
	Stream io.WriterTo
	Size   int64
	Status *metav1.Status // in whose words the answer fails; nil: it does not, or in no Status
	HangUp bool           // the connection may not be trusted with another request
}

// NewAnswer is an answer with the fields that every answer of this proxy has (W-3).
func NewAnswer(code int, contentType string) *Answer {
	return &Answer{Code: code, Fields: [][2]string{
		{"Cache-Control", "no-cache, private"}, {"Content-Type", contentType},
	}}
}

// SetField adds a header field.
func (a *Answer) SetField(key, value string) { a.Fields = append(a.Fields, [2]string{key, value}) }

// Write writes the answer to the request that w answers, under the id of that request (W-3).
func (a *Answer) Write(w Responder) { a.WriteAs(w, AuditIDFor(w.RequestHeader(AuditIDHeader))) }

// WriteAs is Write under an id that is known already.
func (a *Answer) WriteAs(w Responder, auditID string) {
	if a.HangUp {
		w.HangUp()
	}
	w.SetHeader(AuditIDHeader, auditID)
	for _, f := range a.Fields {
		w.SetHeader(f[0], f[1])
	}
	if a.Stream != nil {
		w.Stream(a.Code, a.Stream, a.Size)
		return
	}
	w.Send(a.Code, a.Body)
}

// Length is the number of bytes of the body, -1 if it is not known yet.
func (a *Answer) Length() int64 {
	if a.Stream != nil {
		return a.Size
	}
	return int64(len(a.Body))
}

// Drop gives back what an answer holds that is not written.
func (a *Answer) Drop() {
	if a.Stream != nil {
		_ = CloseBody(a.Stream) // it only gives back
	}
}

// StatusFormat is how a Status is written. The zero value is compact JSON.
type StatusFormat struct {
	Format   object.Format
	Indented bool
}

// Failure answers with s as upstream would: compact JSON and one LF (W-170). On HEAD the headers
// stay and the body is dropped, as upstream does.
func Failure(s *metav1.Status) *Answer { return FailureAs(StatusFormat{}, s) }

// FailureAs is Failure in the form that the client understands (W-10).
func FailureAs(form StatusFormat, s *metav1.Status) *Answer {
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
	a := NewAnswer(int(s.Code), object.Encoding{Format: form.Format}.MediaType())
	a.Body, a.Status = body, s
	statusHeaders(s, a.SetField)
	return a
}

// TooManyRequests is the answer 429 in the words of upstream's flow control; retryAfter is in
// seconds (W-180).
func TooManyRequests(retryAfter int) *Answer {
	a := Text(http.StatusTooManyRequests, TooManyRequestsText)
	a.SetField("Retry-After", strconv.Itoa(retryAfter))
	return a
}

// Malformed answers a request that net/http, and so upstream, would not even parse. The connection
// ends.
func Malformed(why string) *Answer {
	a := NewAnswer(http.StatusBadRequest, textType)
	a.Body, a.HangUp = []byte("400 Bad Request: "+why), true
	return a
}

// InternalError answers a request that ran into a bug of the proxy.
func InternalError() *Answer {
	return Failure(New(http.StatusInternalServerError, "InternalError", "this request ran into a bug of the proxy", nil))
}

// Limited answers a request that flow control refused: 429 in flow control's words, or, while the
// proxy stops, 503 and the end of the connection.
func Limited(form StatusFormat, stopping bool, after time.Duration) *Answer {
	if !stopping {
		return TooManyRequests(int(after / time.Second))
	}
	a := FailureAs(form, ShuttingDown())
	a.HangUp = true
	return a
}

const textType = "text/plain; charset=utf-8"

// Text answers with plain text that no browser takes for anything else.
func Text(code int, text string) *Answer {
	a := NewAnswer(code, textType)
	a.SetField("X-Content-Type-Options", "nosniff")
	a.Body = []byte(text)
	return a
}
