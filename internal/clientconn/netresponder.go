package clientconn

import (
	"io"
	"net/http"
	"strconv"

	"spillway/internal/apistatus"
	"spillway/internal/flowcontrol"
)

// NetResponder answers through net/http.
type NetResponder struct {
	Writer        *PacedWriter
	RequestFields http.Header // of the request
}

// RequestHeader implements apistatus.Responder, as the methods below.
func (r NetResponder) RequestHeader(key string) string { return r.RequestFields.Get(key) }

// SetHeader sets a header of the answer.
func (r NetResponder) SetHeader(key, value string) { r.Writer.Header().Set(key, value) }

// Send answers with a body that is at hand.
func (r NetResponder) Send(code int, body []byte) {
	r.SetHeader("Content-Length", strconv.Itoa(len(body)))
	r.Writer.WriteHeader(code)
	if _, err := r.Writer.Write(body); err == nil {
		_ = r.Writer.FlushError() // it fails if the client has left
	}
}

// Stream answers with a body that is made while it is written.
func (r NetResponder) Stream(code int, body io.WriterTo, size int64) {
	defer func() { _ = apistatus.CloseBody(body) }()
	if size >= 0 {
		r.SetHeader("Content-Length", strconv.FormatInt(size, 10))
	}
	r.Writer.WriteHeader(code)
	if flowcontrol.IsLarge(size) {
		r.Writer.Pace(flowcontrol.PinnedBytes(size))
		defer r.Writer.Pace(0)
	}
	_, err := body.WriteTo(r.Writer)
	if err == nil {
		err = r.Writer.FlushError() // here, where the client's time is limited, and not by net/http in the end
	}
	if err != nil {
		r.Writer.Cut() // what was sent must not look complete
	}
}

// HangUp closes the connection after the answer.
func (r NetResponder) HangUp() { r.SetHeader("Connection", "close") }
