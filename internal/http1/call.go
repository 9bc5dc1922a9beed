package http1

import (
	"bytes"
	"crypto/x509"
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
		c.begin()
		if c.rejectOverLimit() || c.rejectMalformed() {
			return
		}
		if _, ok := c.handshake(); ok {
			c.HangUp() // unless it becomes a WebSocket: what the client sent behind the head is no request (DEV-11)
		}
		s.opts.Handle(c)
	}
}

// begin notes on the connection that a request has arrived.
func (c Call) begin() {
	if h := headConnOf(c.ctx.Conn()); h != nil {
		h.beginRequest(c.ctx)
	}
	if p := clientconn.PacedConnOf(c.ctx.Conn()); p != nil {
		p.ClearPace()
		p.SetState(clientconn.StateActive)
	}
}

// rejectOverLimit answers a request on a connection beyond the limit, and reports that it was one.
func (c Call) rejectOverLimit() bool {
	if !clientconn.PacedConnOf(c.ctx.Conn()).IsOverLimit() {
		return false
	}
	c.HangUp()
	apistatus.TooManyRequests(apistatus.RetryAfter()).Write(c)
	return true
}

// rejectMalformed answers a request that fasthttp lets pass and upstream does not, and reports that
// it was one.
func (c Call) rejectMalformed() bool {
	host := string(c.ctx.Request.Header.Host())
	switch {
	case !httpguts.ValidHostHeader(host) || strings.Contains(host, "@"):
		apistatus.Malformed("malformed Host header").Write(c)
	case c.expectsMore():
		c.HangUp()
		c.ctx.SetStatusCode(fasthttp.StatusExpectationFailed)
	default:
		return false
	}
	return true
}

// expectsMore reports that the client waits for something other than 100 Continue. To that
// net/http's server, and so upstream, answers 417.
func (c Call) expectsMore() bool {
	expect := string(c.ctx.Request.Header.Peek("Expect"))
	return expect != "" && !httpguts.HeaderValuesContainsToken([]string{expect}, "100-continue")
}

// dropBodyRest bounds the time that is spent on the rest of a body that nothing reads. fasthttp
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

// OnDisconnect has gone called if the client leaves, until stop is called.
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
		(webSocket || len(h.Peek("Upgrade")) == 0 && onlySetDuration(h.PeekAll("Connection")))
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

// onlySetDuration reports that Connection headers say nothing but how long the connection lasts.
// Others name headers, which may identify the sender.
func onlySetDuration(connection [][]byte) bool {
	for _, value := range connection {
		if !bytes.EqualFold(value, []byte("keep-alive")) && !bytes.EqualFold(value, []byte("close")) {
			return false
		}
	}
	return true
}

// Headers are those of the request that are wanted, by their canonical keys.
func (c Call) Headers(wanted func(string) bool) http.Header {
	all := http.Header{}
	for key, value := range c.ctx.Request.Header.All() {
		if name := textproto.CanonicalMIMEHeaderKey(string(key)); wanted(name) {
			all[name] = append(all[name], string(value))
		}
	}
	return all
}

// Certificates are those that the client sent, its own first; they are not verified.
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
