package apistatus

import "io"

// Responder is where the one answer to a request is written: a fasthttp response, or one of
// net/http. What an answer says is decided above it, once for both; what it does to a connection is
// decided below.
//
// Exactly one of Send and Stream is called, once, after the headers are set.
type Responder interface {
	// RequestHeader is the first value of a header of the request.
	RequestHeader(key string) string
	// SetHeader sets a header of the answer.
	SetHeader(key, value string)
	// Send answers with a body that is at hand. The client may take it as slowly as the stall timeout
	// allows.
	Send(code int, body []byte)
	// Stream answers with a body that is made while it is written. It keeps old state alive meanwhile,
	// so the client of a large one must keep up. size is its length in bytes, -1 if that is known only
	// at its end. A body that is an io.Closer is closed when it is written, or cannot be.
	Stream(code int, body io.WriterTo, size int64)
	// HangUp closes the connection after the answer, where it may not be trusted with another request.
	HangUp()
}

// CloseBody closes a body that is an io.Closer.
func CloseBody(body io.WriterTo) error {
	if c, ok := body.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
