package serve

import (
	"crypto/x509"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
	"spillway/internal/h2"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
	"spillway/internal/watch"
)

// http2Client is the client of one HTTP/2 connection, and handles its requests.
type http2Client struct {
	server   *http2Server
	listener ListenerConfig
	// below is the client's socket; nil: nothing paces it, as where a test accepts connections itself.
	// Such a connection is counted nowhere, and never evicted.
	below       *clientconn.PacedConn
	isCertified bool
	isProving   atomic.Bool // its credentials are under review
}

// setBusy notes whether the connection has streams.
func (h *http2Client) setBusy(hasStreams bool) {
	if hasStreams {
		h.below.SetState(clientconn.StateActive)
	} else {
		h.below.SetState(clientconn.StateIdle)
	}
}

// bindConn says how the client's connection is evicted, and paces its writes.
func (h *http2Client) bindConn(conn *h2.Conn) {
	if h.below == nil {
		return
	}
	h.below.OnEvict(func(gently bool) {
		if gently {
			conn.GoAway()
			return
		}
		h.below.Cut() // TLS would wait to say goodbye
		conn.Close()
	})
	_ = h.below.SetPace(h.server.server.opts.StallTimeout, 0) // fails on a closed connection, as what follows will
}

// ServeHTTP implements http.Handler.
func (h *http2Client) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	response := w.(*h2.Response)
	h.proveSender(response, r)
	h.answerRequest(response, r)
}

// proveSender reviews the credentials of a request beside it, unless its connection has proven its
// sender already: what passes through is not reviewed otherwise, and further requests of a known
// client need not wait for upstream's answer to it.
func (h *http2Client) proveSender(w *h2.Response, r *http.Request) {
	if h.listener.Access == nil || w.IsProven() || !passthrough.HasBearerToken(r.Header) ||
		!h.isProving.CompareAndSwap(false, true) {
		return
	}
	a := h.listener.Access.Authenticator
	request := auth.AuthnRequest{Header: selectHeaders(r.Header, a.ReadsHeader)}
	prove := w.Prover()
	h.server.active.Go(func() {
		defer h.isProving.Store(false)
		if a.Authenticate(h.server.server.base, request).Outcome == auth.Authenticated {
			prove()
		}
	})
}

func (h *http2Client) answerRequest(w *h2.Response, r *http.Request) {
	s := h.server.server
	out := clientconn.NewPacedWriter(w, h.below, s.opts.StallTimeout)
	defer out.Close()
	isAnonymous := h.listener.isAnonymous(r, h.isCertified)
	out.EndsConnection = func(code int) bool { return isAnonymous || code == http.StatusUnauthorized }
	c := http2Call{
		NetResponder: clientconn.NetResponder{Writer: out, RequestFields: r.Header},
		server:       s, r: r, listener: h.listener,
	}
	defer c.recoverPanic()
	if h.below.IsOverLimit() {
		apistatus.TooManyRequests(apistatus.RetryAfter()).Write(c)
		h.below.GoAway()
		return
	}
	s.handle(c, h.listener)
}

// selectHeaders are those that are wanted, by their canonical keys.
func selectHeaders(all http.Header, isWanted func(key string) bool) http.Header {
	selected := http.Header{}
	for key, values := range all {
		if isWanted(key) {
			selected[key] = values
		}
	}
	return selected
}

// http2Call is a request on a stream of an HTTP/2 connection.
type http2Call struct {
	clientconn.NetResponder
	server   *Server
	r        *http.Request
	listener ListenerConfig
}

// HangUp leaves the connection alone: where a request ends is never in doubt, and the other streams
// have no part in this one.
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

// PlanRequest implements call.
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
func (c http2Call) Headers(isWanted func(string) bool) http.Header {
	return selectHeaders(c.r.Header, isWanted)
}

// Certificates implements call.
func (c http2Call) Certificates() []*x509.Certificate {
	if c.r.TLS == nil {
		return nil
	}
	return c.r.TLS.PeerCertificates
}

// GuardedRequest implements call.
func (c http2Call) GuardedRequest() passthrough.PlainRequest {
	h := c.r.Header
	return passthrough.PlainRequest{
		Host:    c.r.Host,
		Origins: h["Origin"],
		Method:  c.r.Method,
		Target:  c.r.RequestURI,
		AsSelf: c.listener.Identity == passthrough.IdentitySelf &&
			!passthrough.HasOwnCredentials(h["Authorization"], h["Sec-Websocket-Protocol"]),
	}
}

// Watch implements call.
func (c http2Call) Watch(st *watch.Stream, headers watch.HeadersFunc) {
	st.ServeHTTP2(c.Writer, c.r.RemoteAddr, headers)
}
