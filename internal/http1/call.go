package http1

import (
	"bytes"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/net/http/httpguts"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
	"spillway/internal/watch"
)

// Call is an HTTP/1.1 request.
type Call struct {
	fastResponder
	server *ListenerServer
}

// CallOf is the call of a request that fasthttp has read.
func (s *ListenerServer) CallOf(ctx *fasthttp.RequestCtx) Call {
	return Call{fastResponder: fastResponder{ctx: ctx, stall: s.opts.StallTimeout}, server: s}
}

// Handler answers requests that fasthttp has read.
func (s *ListenerServer) Handler() fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		c := s.CallOf(ctx)
		defer c.setStrictTransport()
		defer c.dropBodyRest()
		defer c.recoverPanic()
		if h := headConnOf(ctx.Conn()); h != nil {
			h.beginRequest(ctx)
		}
		if p := clientconn.PacedConnOf(ctx.Conn()); p != nil {
			p.ClearPace()
			p.SetState(clientconn.StateActive)
			if p.IsOverLimit() {
				c.HangUp()
				apistatus.TooManyRequests(apistatus.RetryAfter()).Write(c)
				return
			}
		}
		// fasthttp lets it pass, upstream does not
		if host := string(ctx.Request.Header.Host()); !httpguts.ValidHostHeader(host) || strings.Contains(host, "@") {
			apistatus.Malformed("malformed Host header").Write(c)
			return
		}
		if c.expectsMore() {
			c.HangUp()
			ctx.SetStatusCode(fasthttp.StatusExpectationFailed)
			return
		}
		if _, ok := c.handshake(); ok {
			c.HangUp() // unless it becomes a WebSocket: what the client sent behind the head is no request (DEV-11)
		}
		s.opts.Handle(c)
	}
}

// expectsMore reports that the client waits for something that net/http's server, and so upstream,
// does not know, and answers 417.
func (c Call) expectsMore() bool {
	expect := string(c.ctx.Request.Header.Peek("Expect"))
	return expect != "" && !httpguts.HeaderValuesContainsToken([]string{expect}, "100-continue")
}

// dropBodyRest bounds the time that is spent on the rest of a body that nothing reads. The server
// drops what comes of it within that time, and closes the connection if that is not all.
func (c Call) dropBodyRest() {
	h := headConnOf(c.ctx.Conn())
	length := c.ctx.Request.Header.ContentLength()
	if h == nil || c.ctx.Hijacked() || length >= 0 && length <= PrefetchBytesLimit || c.ctx.RequestBodyStream() == nil {
		return
	}
	h.lingerOnClose.Store(true)
	_ = h.SetReadDeadline(time.Now().Add(clientconn.LingerTimeout)) // fails on a closed connection, as the answer will
}

// setStrictTransport adds to an answer what browsers are to know, if it does not say so already.
func (c Call) setStrictTransport() {
	const key = clientconn.StrictTransportSecurityHeader
	h := &c.ctx.Response.Header
	if directives := clientconn.StrictTransportSecurity(c.ctx.Conn()); directives != "" && len(h.Peek(key)) == 0 {
		h.Set(key, directives)
	}
}

// recoverPanic turns a panic, which fasthttp would let kill the process, into a 500 and a log line.
func (c Call) recoverPanic() {
	if p := recover(); p != nil {
		c.server.opts.Panicked(p)
		c.ctx.Response.Reset()
		apistatus.InternalError().Write(c)
	}
}

// MarkProven notes that the sender of the request is known, or that the listener does not ask.
func (c Call) MarkProven() { clientconn.PacedConnOf(c.ctx.Conn()).MarkProven() }

// Address is the client's IP address; none for a unix socket.
func (c Call) Address() netip.Addr { return clientconn.AddressOf(c.ctx.RemoteAddr()) }

// OnDisconnect has gone called if the client departs before stop is called.
func (c Call) OnDisconnect(gone func()) (stop func()) {
	return c.server.opts.Poller.Watch(c.ctx.Conn(), gone).Stop
}

// Forward passes the request through.
func (c Call) Forward(flow flowcontrol.Flow, as *auth.Impersonation, o passthrough.AnswerObserver) {
	c.server.opts.Forwarder.Forward(RequestOf(c.ctx),
		passthrough.SenderIdentity{Listener: c.server.opts.Identity, As: as, Flow: flow, Trusted: c.server.opts.Trusted}, o)
}

// PlanRequest copies what a plan needs.
func (c Call) PlanRequest() plan.Request {
	h := &c.ctx.Request.Header
	path, query, _ := bytes.Cut(h.RequestURI(), []byte("?"))
	_, webSocket := c.handshake()
	plain := bytes.Equal(h.Protocol(), []byte("HTTP/1.1")) && h.ContentLength() <= 0 &&
		len(h.Peek("Transfer-Encoding")) == 0 &&
		(webSocket || len(h.Peek("Upgrade")) == 0 && isOrdinary(h.PeekAll("Connection")))
	return plan.Request{
		Method:         string(h.Method()),
		Path:           string(path),
		RawQuery:       string(query),
		Accept:         string(h.Peek("Accept")),
		AcceptEncoding: string(h.Peek("Accept-Encoding")),
		UserAgent:      string(h.UserAgent()),
		Plain:          plain,
		WebSocket:      webSocket,
		Chunked:        true,
	}
}

// isOrdinary reports that Connection headers say nothing but how long the connection lasts. Others
// name headers, which may identify the sender.
func isOrdinary(connection [][]byte) bool {
	for _, value := range connection {
		if !bytes.EqualFold(value, []byte("keep-alive")) && !bytes.EqualFold(value, []byte("close")) {
			return false
		}
	}
	return true
}

// Headers implements call.
func (c Call) Headers(wanted func(string) bool) http.Header {
	all := http.Header{}
	for key, value := range c.ctx.Request.Header.All() {
		if name := textproto.CanonicalMIMEHeaderKey(string(key)); wanted(name) {
			all[name] = append(all[name], string(value))
		}
	}
	return all
}

// Certificates implements call.
func (c Call) Certificates() []*x509.Certificate {
	if state := c.ctx.TLSConnectionState(); state != nil {
		return state.PeerCertificates
	}
	return nil
}

// GuardedRequest copies what a guard needs.
func (c Call) GuardedRequest() passthrough.PlainRequest {
	h := &c.ctx.Request.Header
	r := passthrough.PlainRequest{
		Host:    string(h.Host()),
		Method:  string(h.Method()),
		Target:  string(h.RequestURI()),
		Upgrade: len(h.Peek("Upgrade")) > 0,
		AsSelf: c.server.opts.Identity == passthrough.IdentitySelf &&
			!passthrough.HasOwnCredentials(h.PeekAll("Authorization"), h.PeekAll("Sec-WebSocket-Protocol")),
	}
	for _, o := range h.PeekAll("Origin") {
		r.Origins = append(r.Origins, string(o))
	}
	return r
}

// Watch takes the connection away from fasthttp and makes it a stream: no handler, no buffers and
// no request context stay.
func (c Call) Watch(st *watch.Stream, headers watch.HeadersFunc) {
	if h, ok := c.handshake(); ok {
		c.watchWebSocket(st, h)
		return
	}
	s := c.server
	out := &watch.ConnSink{StallTimeout: s.opts.StallTimeout, Closing: c.ctx.Request.Header.ConnectionClose(),
		Head: watch.Head(st, headers, clientconn.StrictTransportSecurity(c.ctx.Conn()))}
	out.Ended = func(reason watch.EndReason, draining bool) { s.watchEnded(out, reason, draining) }
	st.Serve(out, func(take, lost func()) {
		hijack(c.ctx, func(conn net.Conn) {
			out.Closing = out.Closing || isPipelined(conn)
			out.Conn = unwrapHijacked(conn) // the wrapper holds a read buffer
			out.PollHandle = s.opts.Poller.Watch(out.Conn, func() { st.Stop(watch.EndClientClosed) })
			go take()
		}, func() {
			out.Conn = c.ctx.Conn()
			lost()
		})
	})
}

// watchEnded lets a connection serve its next request after the clean end of a watch (W-2), if
// there may be one.
func (s *ListenerServer) watchEnded(out *watch.ConnSink, reason watch.EndReason, draining bool) {
	out.PollHandle.Stop()
	switch {
	case !reason.Clean():
		clientconn.ResetConn(out.Conn)
	case out.Closing || draining:
		go out.Conn.Close() //nolint:errcheck // the client has left
	default:
		go s.serveNext(out.Conn)
	}
}

// isPipelined reports that a connection that was taken from fasthttp has more than the request that
// was read of it. The reader that has the beginning of that is dropped, so it cannot be answered
// any more, and what is left of it must not be read as a request.
func isPipelined(taken net.Conn) bool {
	past := time.Unix(1, 0)
	if err := taken.SetReadDeadline(past); err != nil {
		return true
	}
	n, _ := taken.Read(make([]byte, 1)) // what is here already: with that deadline nothing is read of the socket
	return taken.SetReadDeadline(time.Time{}) != nil || n > 0
}
