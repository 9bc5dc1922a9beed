package serve

import (
	"io"
	"net/http"
	"strconv"
)

// netResponder answers through net/http.
type netResponder struct {
	w    http.ResponseWriter
	asks http.Header // of the request
}

func (r netResponder) requested(key string) string { return r.asks.Get(key) }

func (r netResponder) header(key, value string) { r.w.Header().Set(key, value) }

func (r netResponder) send(code int, body []byte) {
	r.w.WriteHeader(code)
	_, _ = r.w.Write(body) // a failed write means that the client left; there is nobody to tell
}

func (r netResponder) stream(code int, body io.WriterTo, size int64) {
	if size >= 0 {
		r.header("Content-Length", strconv.FormatInt(size, 10))
	}
	r.w.WriteHeader(code)
	if _, err := body.WriteTo(r.w); err != nil {
		panic(http.ErrAbortHandler) // what is sent must not look complete
	}
}

func (r netResponder) hangUp() { r.header("Connection", "close") }
