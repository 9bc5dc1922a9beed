package serve

import (
	"io"
	"net/http"
	"strconv"

	"spillway/internal/apistatus"
	"spillway/internal/flowcontrol"
)

// netResponder answers through net/http.
type netResponder struct {
	out   *netWriter
	asked http.Header // of the request
}

func (r netResponder) RequestHeader(key string) string { return r.asked.Get(key) }

func (r netResponder) SetHeader(key, value string) { r.out.Header().Set(key, value) }

func (r netResponder) Send(code int, body []byte) {
	r.SetHeader("Content-Length", strconv.Itoa(len(body)))
	r.out.WriteHeader(code)
	if _, err := r.out.Write(body); err == nil {
		_ = r.out.FlushError() // a client that left fails it; there is nobody to tell
	}
}

func (r netResponder) Stream(code int, body io.WriterTo, size int64) {
	defer func() { _ = apistatus.CloseBody(body) }()
	if size >= 0 {
		r.SetHeader("Content-Length", strconv.FormatInt(size, 10))
	}
	r.out.WriteHeader(code)
	if flowcontrol.IsLarge(size) {
		r.out.pace(flowcontrol.PinnedBytes(size))
		defer r.out.pace(0)
	}
	_, err := body.WriteTo(r.out)
	if err == nil {
		err = r.out.FlushError() // here, where the client's time is limited, and not by net/http in the end
	}
	if err != nil {
		r.out.cut() // what was sent must not look complete
	}
}

func (r netResponder) HangUp() { r.SetHeader("Connection", "close") }
