package http1

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
)

const (
	// OrdinaryHeadBytes is how many bytes a head over HTTP/1.1 has that is not large: fasthttp's
	// buffer.
	OrdinaryHeadBytes = 16 << 10
	// HeadArrivalTimeout is how long a head may take to arrive once it is large: until then others
	// cannot have what it holds.
	HeadArrivalTimeout = 10 * time.Second
)

// errHeadTooLarge says that a head is larger than any may be, and errNoHeadRoom that there is no
// room for it.
var (
	errHeadTooLarge = errors.New("the head is larger than 1 MiB")
	errNoHeadRoom   = errors.New("there is no room for a large head")
)

// serveIfLarge serves a request whose head does not fit into the buffer of the ordinary server,
// which err says. It reports whether it did.
func (s *ListenerServer) serveIfLarge(c net.Conn, err error) bool {
	var tooLarge *fasthttp.ErrSmallBuffer
	h := headConnOf(c)
	if h == nil || !errors.As(err, &tooLarge) {
		return false
	}
	headBytes := h.fullBuffer()
	if headBytes == nil {
		return false
	}
	h.detach()
	s.serveLarge(h.Conn, headBytes)
	return true
}

// serveLarge serves the one request of an HTTP/1.1 connection whose head does not fit into
// fasthttp's buffer. headBytes is its beginning. The head is read to its end, and the connection is
// served by a fasthttp.Server of its own, whose buffer is as large as that head. After the answer
// the connection returns to the ordinary server, and buffers and server are garbage.
//
// So all connections have small buffers, and a large head is parsed, checked and answered by the
// code that does it for all.
func (s *ListenerServer) serveLarge(c net.Conn, headBytes []byte) {
	head := flowcontrol.NewLargeHead(s.opts.Heads, clientconn.AddressOf(c.RemoteAddr()))
	defer head.Handled()
	all, end, err := readLargeHead(c, headBytes, head)
	switch {
	case errors.Is(err, errHeadTooLarge):
		sendLastText(c, "431 Request Header Fields Too Large")
	case errors.Is(err, errNoHeadRoom):
		sendLastStatus(c, apistatus.HeadTooLarge())
	}
	if err != nil {
		_ = c.Close()
		return
	}
	fast := s.newFastServer(end)
	handler := s.Handler()
	fast.Handler = func(ctx *fasthttp.RequestCtx) {
		handler(ctx)
		s.returnConn(ctx)
	}
	if err := fast.ServeConn(newHeadConn(c, all, head)); err != nil {
		s.opts.Log.Debug("a request with a large head", zap.String("error", errorKind(err)))
	}
}

// chunkedLength is what fasthttp reports as the length of a chunked body.
const chunkedLength = -1

// returnConn has the connection return to its server after the answer, unless it was taken over or
// has to be closed: where a body was sent, one cannot be certain that all of it is read.
func (s *ListenerServer) returnConn(ctx *fasthttp.RequestCtx) {
	h := &ctx.Request.Header
	switch length := h.ContentLength(); {
	case ctx.Hijacked():
		return
	case length > 0, length == chunkedLength, len(h.Peek("Transfer-Encoding")) > 0:
		ctx.SetConnectionClose()
		return
	}
	ctx.Hijack(func(c net.Conn) {
		if early, err := earlyBytes(c); err != nil || len(early) > 0 {
			_ = c.Close()
			return
		}
		go s.serveNext(unwrapHijacked(c))
	})
}

// serveNext lets a connection serve its next request.
func (s *ListenerServer) serveNext(c net.Conn) {
	clientconn.PacedConnOf(c).SetState(clientconn.StateIdle)
	if err := s.fast.ServeConn(newHeadConn(c, nil, nil)); err != nil {
		s.opts.Log.Debug("a connection's next request", zap.String("error", errorKind(err)))
	}
}

// readLargeHead reads on until the head's end, and returns all that was read and where the head
// ends in it.
func readLargeHead(c net.Conn, headBytes []byte, head *flowcontrol.LargeHead) ([]byte, int, error) {
	if err := c.SetReadDeadline(time.Now().Add(HeadArrivalTimeout)); err != nil {
		return nil, 0, err
	}
	all := headBytes
	grow := func(size int) error {
		if !head.Grow(flowcontrol.HeadCopies * int64(size)) {
			return errNoHeadRoom
		}
		all = append(make([]byte, 0, size), all...)
		return nil
	}
	if err := grow(2 * OrdinaryHeadBytes); err != nil {
		return nil, 0, err
	}
	for looked := 0; ; {
		if end := headEnd(all, looked-3); end >= 0 {
			return all, end, nil
		}
		looked = len(all)
		if looked == flowcontrol.LargestHeadBytes {
			return nil, 0, errHeadTooLarge
		}
		if looked == cap(all) {
			if err := grow(min(2*looked, flowcontrol.LargestHeadBytes)); err != nil {
				return nil, 0, err
			}
		}
		n, err := c.Read(all[len(all):cap(all)])
		all = all[:len(all)+n]
		if err != nil && n == 0 {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, 0, err
		}
	}
}
