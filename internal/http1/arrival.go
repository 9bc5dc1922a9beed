package http1

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"

	"github.com/valyala/fasthttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What becomes of an HTTP/1.1 connection before and between its requests, where fasthttp has it.

// headArrived gives a body its own time.
func (s *ListenerServer) headArrived(*fasthttp.RequestHeader) fasthttp.RequestConfig {
	return fasthttp.RequestConfig{ReadTimeout: s.opts.Arrivals.Owned}
}

// connState follows a connection from one request to the next.
func connState(c net.Conn, state fasthttp.ConnState) {
	if h := headConnOf(c); h != nil {
		switch state {
		case fasthttp.StateIdle:
			h.ends()
		case fasthttp.StateHijacked:
			h.answering = nil // the goroutine's that has taken the connection over
		}
	}
	switch state {
	case fasthttp.StateActive:
		clientconn.Of(c).SetState(clientconn.StateNew)
	case fasthttp.StateIdle:
		clientconn.Of(c).SetState(clientconn.StateIdle)
	}
}

// misread ends a connection on which no request could be read, with the answer that net/http, and
// so upstream, has for that. A client that took too long, or left, gets none. A head that is too
// large for the buffer is read elsewhere if the buffer is an ordinary one.
func (s *ListenerServer) misread(ctx *fasthttp.RequestCtx, err error, ordinary bool) {
	c := ctx.Conn()
	var tooLarge *fasthttp.ErrSmallBuffer
	var broken net.Error
	switch {
	case errors.As(err, &tooLarge):
		if h := headConnOf(c); h != nil && ordinary && h.whole() != nil {
			h.detach()
			s.serveLarge(h.Conn, h.whole())
			return
		}
		lastWords(c, "431 Request Header Fields Too Large")
	case errors.As(err, &broken), errors.Is(err, io.ErrUnexpectedEOF):
	default:
		lastWords(c, "400 Bad Request")
	}
	_ = c.Close() // fasthttp's own words find it closed
}

// lastWordsWait is how long a client may take to read an answer for which it did not wait. A
// connection that is closed at once while it has unread bytes is reset, and the answer lost
// (net/http waits as long).
const lastWordsWait = 500 * time.Millisecond

// lastWords is an answer of net/http's own, after which it closes the connection.
func lastWords(c net.Conn, status string) {
	lastAnswer(c, "HTTP/1.1 "+status+"\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"+status)
}

// lastStatus is an answer of the proxy's own, after which it closes the connection.
func lastStatus(c net.Conn, s *metav1.Status) {
	body := apistatus.Body(s)
	lastAnswer(c, fmt.Sprintf(
		"HTTP/1.1 %d %s\r\nAudit-Id: %s\r\nCache-Control: no-cache, private\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\nConnection: close\r\n\r\n%s", s.Code, http.StatusText(int(s.Code)), apistatus.AuditIDFor(""),
		len(body), body))
}

// lastAnswer sends an answer, and has the client read it.
func lastAnswer(c net.Conn, answer string) {
	_ = c.SetDeadline(time.Now().Add(lastWordsWait)) // fails on a closed connection, as what follows will
	_, err := io.WriteString(c, answer)
	c = belowHead(c)
	if below, ok := c.(*clientconn.PacedConn); ok {
		c = below.Conn
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok && err == nil {
		if half.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(c, http.DefaultMaxHeaderBytes))
		}
	}
}
