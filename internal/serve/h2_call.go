package serve

import (
	"crypto/x509"
	"net/http"
	"net/netip"
	"strings"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
	"spillway/internal/watch"
)

// http2Call is a request on a stream of an HTTP/2 connection.
type http2Call struct {
	clientconn.NetResponder
	server   *Server
	r        *http.Request
	listener ListenerConfig
}

// HangUp leaves the connection alone: where one request of it ends is never in doubt, and the
// others have no part in this one.
func (c http2Call) HangUp() {}

// recoverPanic turns a panic into a 500, or a reset if the answer has begun, and a log line.
func (c http2Call) recoverPanic() {
	p := recover()
	if p == nil {
		return
	}
	c.server.reportPanic(p)
	if c.Writer.HeadWritten() {
		c.Writer.Cut()
		return
	}
	clear(c.Writer.Header())
	apistatus.InternalError().Write(c)
}

func (c http2Call) MarkProven() { c.Writer.Prove() }

func (c http2Call) Address() netip.Addr {
	address, _ := netip.ParseAddrPort(c.r.RemoteAddr) // of a unix socket it is none
	return address.Addr()
}

func (c http2Call) OnDisconnect(gone func()) (stop func()) {
	return c.Writer.OnEnd(func(error) { gone() })
}

func (c http2Call) Forward(flow flowcontrol.Flow, as *auth.Impersonation, o passthrough.AnswerObserver) {
	c.server.opts.Forwarder.ForwardHTTP2(c.Writer, c.r,
		passthrough.SenderIdentity{Listener: c.listener.Identity, As: as, Flow: flow, Trusted: c.listener.AnswerAll}, o)
}

// PlanRequest is what a plan needs. A request with a body is nothing that a plan knows.
func (c http2Call) PlanRequest() plan.Request {
	path, query, _ := strings.Cut(c.r.RequestURI, "?")
	return plan.Request{
		Method:         c.r.Method,
		Path:           path,
		RawQuery:       query,
		Accept:         c.r.Header.Get("Accept"),
		AcceptEncoding: c.r.Header.Get("Accept-Encoding"),
		UserAgent:      c.r.UserAgent(),
		Plain:          c.r.ContentLength == 0,
	}
}

// Headers implements call.
func (c http2Call) Headers(wanted func(string) bool) http.Header {
	all := http.Header{}
	for name, values := range c.r.Header {
		if wanted(name) {
			all[name] = values
		}
	}
	return all
}

// Certificates implements call.
func (c http2Call) Certificates() []*x509.Certificate {
	if c.r.TLS == nil {
		return nil
	}
	return c.r.TLS.PeerCertificates
}

// GuardedRequest is what a guard needs.
func (c http2Call) GuardedRequest() passthrough.PlainRequest {
	h := c.r.Header
	return passthrough.PlainRequest{
		Host:    c.r.Host,
		Origins: h["Origin"],
		Method:  c.r.Method,
		Target:  c.r.RequestURI,
		AsSelf: c.listener.Identity == passthrough.IdentitySelf &&
			!passthrough.OwnCredentials(h["Authorization"], h["Sec-Websocket-Protocol"]),
	}
}

// Watch implements call.
func (c http2Call) Watch(st *watch.Stream, headers watch.HeadersFunc) {
	st.ServeHTTP2(c.Writer, c.r.RemoteAddr, headers)
}
