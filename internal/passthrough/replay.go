package passthrough

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
)

// replayer serves what needs net/http's proxy: it takes a connection from its server and lets a
// net/http server find one request on it.
//
// The head that is replayed tells net/http only where the body ends and whether another protocol is
// asked for. What goes upstream was decided before, by the code that decides it for direct
// requests; so no second reading of the client's bytes can come to another result. Invariant:
// exactly one request per replayed connection, since the next one would pass by the handler of that
// server, with its checks.
type replayer struct {
	f       *Forwarder
	handler http.Handler // answers a request whose context has an exchange with upstream's answer
	server  *http.Server
	conns   chan net.Conn // from hijack handlers to the server
	closed  chan struct{}
	closes  sync.Once
	served  chan struct{} // closed when the server has stopped; nil if it never started
}

func newReplayer(f *Forwarder) *replayer {
	r := &replayer{f: f, conns: make(chan net.Conn), closed: make(chan struct{})}
	std, _ := zap.NewStdLogAt(f.log, zap.DebugLevel) // fails for unknown levels only
	proxy := &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      exchangeTransport{},
		FlushInterval:  -1,
		BufferPool:     pooledBuffers{},
		ModifyResponse: noteResponse,
		ErrorHandler:   f.replayFailed,
		ErrorLog:       std,
	}
	// No timeouts: the head is already here, and what follows may last.
	r.handler = replayHandler(proxy)
	r.server = &http.Server{ // #nosec G112 -- the head of every request is our own
		Handler:     redactPanics(r.handler, f.log),
		ConnContext: withExchange,
		ErrorLog:    std,
	}
	r.server.SetKeepAlivesEnabled(false)
	return r
}

func (r *replayer) start() {
	r.served = make(chan struct{})
	go func() {
		defer close(r.served)
		_ = r.server.Serve(r) // ends with net.ErrClosed from Accept
	}()
}

// take hijacks the connection of a request and passes it on, with the head and what the server has
// read of the body in front.
func (r *replayer) take(from HTTP1Request, x *exchange) {
	head := replayHead(x.in)
	if x.in.length > 0 {
		read, err := from.BodyStart(x.in.length)
		if err != nil {
			w := from.AnswerWithin(0)
			w.HangUp()
			apistatus.Write(w, apistatus.BadRequest("the request body ended early"))
			x.end()
			return
		}
		head = append(head, read...)
	}
	x.large = from.ShareHead()
	x.pace = func() {
		if p := clientconn.Of(x.conn); p != nil {
			_ = p.SetPace(x.f.Opts.StallTimeout, 0) // fails on a closed connection, as the answer will
		}
	}
	x.waiting.Store(true)
	from.Hijack(func(c net.Conn) {
		if !x.waiting.CompareAndSwap(true, false) {
			_ = c.Close() // aborted meanwhile
			return
		}
		conn := &replayConn{Conn: c, head: head, x: x}
		select {
		case r.conns <- conn:
		case <-r.closed:
			_ = conn.Close()
		}
	}, func() {
		if x.waiting.CompareAndSwap(true, false) {
			x.end()
		}
	})
}

// replayHead is the least that net/http has to know of the request.
func replayHead(in *Inbound) []byte {
	head := fmt.Appendf(nil, "%s / %s\r\nHost: replay\r\n", in.method, in.proto)
	switch {
	case in.length > 0:
		head = append(strconv.AppendInt(append(head, "Content-Length: "...), in.length, 10), "\r\n"...)
	case in.length < 0:
		head = append(head, "Transfer-Encoding: chunked\r\n"...)
	}
	if in.upgrade != "" {
		head = fmt.Appendf(head, "Connection: Upgrade\r\nUpgrade: %s\r\n", in.upgrade)
	}
	return append(head, "\r\n"...)
}

// Accept implements net.Listener.
func (r *replayer) Accept() (net.Conn, error) {
	select {
	case c := <-r.conns:
		return c, nil
	case <-r.closed:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (r *replayer) Addr() net.Addr { return &net.UnixAddr{Name: "replay", Net: "unix"} }

// Close implements net.Listener.
func (r *replayer) Close() error {
	r.closes.Do(func() { close(r.closed) })
	return nil
}

// close stops the server. All exchanges have ended.
func (r *replayer) close() {
	_ = r.Close()
	_ = r.server.Close()
	if r.served != nil {
		<-r.served
	}
}

// replayFailed answers a replayed request that upstream did not, or not because of the request
// itself.
func (f *Forwarder) replayFailed(w http.ResponseWriter, req *http.Request, err error) {
	x := exchangeOf(req.Context())
	s := failureStatus(x.class, err)
	switch live := req.Context().Err() == nil; {
	case live && x.broken.Load():
		s = apistatus.BadRequest("the body of the request ends before it is complete, or its chunks are malformed")
		x.code = int(s.Code)
	case live:
		x.code = int(s.Code)
		f.log.Warn("upstream gave no answer", zap.String("method", x.in.method), zap.Stringer("class", x.class),
			zap.Error(err))
	case errors.Is(err, context.Canceled):
		s = apistatus.Unavailable("the request was cancelled")
	}
	out := clientconn.NewPacedWriter(w, nil, 0)
	defer out.Close()
	apistatus.Write(clientconn.NetResponder{Writer: out, RequestFields: x.in.Header}, s)
}

// replayConn is a hijacked connection with a request head in front. Reads see the head first, then
// what the server had buffered, then the client. Closing it ends the exchange.
type replayConn struct {
	net.Conn
	head []byte // owned by Read, which net/http never calls from two goroutines at once
	x    *exchange
}

// Read implements net.Conn. It never mixes the head with what comes after it.
func (c *replayConn) Read(p []byte) (int, error) {
	if len(c.head) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.head)
	if c.head = c.head[n:]; len(c.head) == 0 {
		c.head = nil
	}
	return n, nil
}

// CloseWrite ends the direction to the client, if the connection can do that; net/http and upgraded
// protocols use it.
func (c *replayConn) CloseWrite() error {
	conn := c.Conn
	if h, ok := conn.(interface{ UnsafeConn() net.Conn }); ok {
		conn = h.UnsafeConn()
	}
	if w, ok := conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// Close implements net.Conn.
func (c *replayConn) Close() error {
	err := c.Conn.Close()
	c.x.end()
	return err
}
