package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	clienttransport "k8s.io/client-go/transport"
)

// How soon a connection is known to be dead that neither side has closed: an apiserver that hangs,
// a host or a path that has gone. A mirror on it is not current any more, and no byte tells. What
// is taken for dead too early costs a connection and new watches that go on where the old ones
// were; what is taken for alive costs every client the time in which it hears nothing, and
// client-go's own 45 s are most of what an outage of seconds takes to heal.
//
// What passes through for clients is another matter. A write that is under way is lost with its
// connection, and an apiserver that is merely busy may be silent for seconds: there HTTP/2 has the
// patience that it has in client-go, so that no client loses a request that it would not have lost
// without us.
const (
	// pingAfter and pingTimeout are for the HTTP/2 of mirrors: a connection that has been silent so
	// long is sent a ping, and has so long for it. passingPingAfter and passingPingTimeout are for
	// that of clients' requests.
	pingAfter          = 4 * time.Second
	pingTimeout        = 4 * time.Second
	passingPingAfter   = 30 * time.Second
	passingPingTimeout = 15 * time.Second
	// unacknowledged is how long bytes may be on their way to a host that does not acknowledge them
	// (TCP_USER_TIMEOUT), and keepaliveProbe how often a silent one is probed for an
	// acknowledgement, for HTTP/1.1.
	unacknowledged = 10 * time.Second
	keepaliveIdle  = 5 * time.Second
	keepaliveProbe = 2 * time.Second
	// dialTimeout and handshakeTimeout are for a connection that is being made. A host that is up
	// again is found by the next one sooner than by the kernel's doubling of its own attempts. A
	// request that waits for a connection twice, once for its review, ends within ten seconds.
	dialTimeout      = 4 * time.Second
	handshakeTimeout = 5 * time.Second
)

// Purpose is what a transport is for.
type Purpose struct {
	http1      bool // nothing else is spoken
	fresh      bool // a connection for each request
	compressed bool // answers that net/http asked to be compressed are decompressed
	maxConns   int  // at once; 0: any number
	maxIdle    int
	idle       time.Duration
	pingAfter  time.Duration
	pingWait   time.Duration
}

// The kinds of transports. See pingAfter for when they give a connection up.
var (
	// Mirrors is for reflectors, probes of discovery, and what else the proxy asks for itself.
	Mirrors = Purpose{compressed: true, maxIdle: 25, idle: idleTimeout, pingAfter: pingAfter, pingWait: pingTimeout}
	// Passing is for requests that pass through, over HTTP/2 if upstream speaks it.
	Passing = Purpose{
		maxIdle: passThroughIdle, idle: idleTimeout, pingAfter: passingPingAfter, pingWait: passingPingTimeout,
	}
	// PassingHTTP1 is Passing over HTTP/1.1, which upgrades (exec, port-forward) need and large
	// answers take less of.
	PassingHTTP1 = Purpose{
		http1: true, maxIdle: passThroughIdle, idle: idleBelowUpstreams,
		pingAfter: passingPingAfter, pingWait: passingPingTimeout,
	}
	// PassingFresh is Passing with a connection for each request.
	PassingFresh = Purpose{fresh: true, idle: freshIdle, pingAfter: freshPingAfter, pingWait: freshPingTimeout}

	// single has at most one connection.
	single = Purpose{
		http1: true, maxConns: 1, maxIdle: 1, idle: probeIdle, pingAfter: passingPingAfter, pingWait: passingPingTimeout,
	}
)

const (
	idleTimeout = 90 * time.Second
	// idleBelowUpstreams is how long an idle connection of HTTP/1.1 is kept: kube-apiserver closes
	// one after 90 s, and a request that is sent just then may get no answer.
	idleBelowUpstreams = time.Minute
	// passThroughIdle is how many idle connections are kept for pass-through: as many as clients of
	// a busy proxy use at once over HTTP/1.1.
	passThroughIdle = 256
	// answerHeadBytes is how large the head of an answer may be: as large as a request's. net/http
	// alone would hold 10 MiB for each.
	answerHeadBytes = 1 << 20
)

// Transport sends requests by an http.Transport that is replaced when the authorities that it
// trusts, or its certificate, change.
type Transport struct {
	factory *Factory
	kind    Purpose
	bare    bool
	config  *clienttransport.Config // where exec plugins put certificates and a dialer of theirs

	mu  sync.Mutex
	now atomic.Pointer[generation]
}

// generation is what new connections are made by between two changes of files.
type generation struct {
	trust *trust       // nil: the system's certificates, or none
	pair  *certificate // nil: none, or an exec plugin's
	http  *http.Transport
}

// Bare is a transport of requests that bring their own credentials (design D12): it knows which
// authorities to trust, and nothing else. It adds no credentials, no client certificate, none of
// client-go's wrappers, so a request's own are all that upstream sees.
func (f *Factory) Bare(kind Purpose) (*Transport, error) {
	return f.transport(kind, rest.AnonymousClientConfig(f.base), true)
}

// Own is a transport that adds the credentials of the Factory. A request that has an Authorization
// header keeps it.
func (f *Factory) Own(kind Purpose) (http.RoundTripper, error) {
	_, rt, err := f.own(kind)
	return rt, err
}

// own is the transport, and the same with the credentials around it.
func (f *Factory) own(kind Purpose) (*Transport, http.RoundTripper, error) {
	cfg := rest.CopyConfig(f.base)
	if hasToken(cfg) || cfg.Username != "" || hasPair(cfg) {
		cfg.ExecProvider = nil // client-go does not ask a plugin then, either
	}
	cfg.BearerToken, cfg.BearerTokenFile = "", "" // the Factory's to follow
	t, err := f.transport(kind, cfg, false)
	if err != nil {
		return nil, nil, err
	}
	rt, err := f.wrapped(t)
	if err != nil {
		return nil, nil, err
	}
	if f.token != nil {
		rt = &bearer{factory: f, next: rt}
	}
	return t, &reloadingTransport{factory: f, next: rt}, nil
}

// wrapped is t within client-go's wrappers, which add credentials.
func (f *Factory) wrapped(t *Transport) (http.RoundTripper, error) {
	wrap := func(next http.RoundTripper) (http.RoundTripper, error) {
		return clienttransport.HTTPWrappersForConfig(t.config, next)
	}
	if f.plugin == nil {
		return wrap(t)
	}
	return newPatientTransport(f.plugin, wrap, t)
}

func (f *Factory) transport(kind Purpose, cfg *rest.Config, bare bool) (*Transport, error) {
	cfg.CertFile, cfg.CertData, cfg.KeyFile, cfg.KeyData = "", nil, "", nil // followed
	cfg.CAFile, cfg.CAData = "", nil
	cfg.NextProtos = nil // net/http's to choose, by Protocols
	if cfg.Dial == nil {
		cfg.Dial = f.shared.dialer.DialContext
	}
	config, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	t := &Transport{factory: f, kind: kind, bare: bare, config: config}
	_, err = t.generation()
	return t, err
}

// RoundTrip implements http.RoundTripper. If upstream's certificate is not trusted, and the file of
// authorities turns out to be another one by now, the request is sent again: nothing of it has been
// sent.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.kind.fresh { // its body may not be there a second time
		t.factory.shared.refreshTrust(t.factory)
	}
	g, err := t.generation()
	if err != nil {
		return nil, err
	}
	response, err := g.send(r, t.kind)
	if err == nil || !distrusted(err) {
		return response, err
	}
	t.factory.shared.refreshTrust(t.factory)
	if now, failed := t.generation(); failed == nil && now.trust != g.trust {
		if again := rewound(r); again != nil {
			g = now
			response, err = g.send(again, t.kind)
		}
	}
	if distrusted(err) {
		err = &UntrustedError{CA: g.authority(), Err: err}
	}
	return response, err
}

// refreshTrust looks at the file of authorities.
func (s *sharedSettings) refreshTrust(f *Factory) {
	if f.trust != nil && f.trust.Look() {
		s.dialer.unresponsive.closeIdle()
	}
}

// distrusted reports that upstream showed a certificate that is not good.
func distrusted(err error) bool {
	var bad *tls.CertificateVerificationError
	return errors.As(err, &bad)
}

// rewound is a request that was not sent, to be sent once more; nil if its body cannot be had
// again.
func rewound(r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	if r.GetBody == nil {
		return nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil
	}
	again := r.WithContext(r.Context())
	again.Body = body
	return again
}

// CloseIdleConnections closes what is not in use.
func (t *Transport) CloseIdleConnections() {
	if g := t.now.Load(); g != nil {
		g.http.CloseIdleConnections()
	}
}

// generation is the one by which the files are now.
func (t *Transport) generation() (*generation, error) {
	trust, pair := t.material()
	if g := t.now.Load(); g != nil && g.trust == trust && g.pair == pair {
		return g, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	trust, pair = t.material() // another goroutine's may be older
	before := t.now.Load()
	if before != nil && before.trust == trust && before.pair == pair {
		return before, nil
	}
	made, err := t.build(trust, pair)
	if err != nil {
		return nil, err
	}
	g := &generation{trust: trust, pair: pair, http: made}
	t.now.Store(g)
	if before != nil {
		t.factory.shared.retire(before.http)
	}
	return g, nil
}

func (t *Transport) material() (*trust, *certificate) {
	var trusted *trust
	var pair *certificate
	if t.factory.trust != nil {
		trusted = t.factory.trust.Get()
	}
	if t.factory.pair != nil && !t.bare {
		pair = t.factory.pair.Get()
	}
	return trusted, pair
}

func (t *Transport) build(trusted *trust, pair *certificate) (*http.Transport, error) {
	secure, err := clienttransport.TLSConfigFor(t.config)
	if err != nil {
		return nil, fmt.Errorf("TLS of the kubeconfig: %w", err)
	}
	if secure == nil {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if trusted != nil {
		secure.RootCAs = trusted.Pool
	}
	if pair != nil {
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	if get := secure.GetClientCertificate; pair == nil && get != nil && t.factory.plugin != nil {
		secure.GetClientCertificate = t.factory.plugin.certificate(get)
	}
	proxy := t.config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!t.kind.http1)
	made := &http.Transport{
		Proxy:                  proxy,
		DialContext:            t.config.DialHolder.Dial,
		TLSClientConfig:        secure,
		TLSHandshakeTimeout:    handshakeTimeout,
		IdleConnTimeout:        t.kind.idle,
		MaxIdleConnsPerHost:    t.kind.maxIdle,
		MaxConnsPerHost:        t.kind.maxConns,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: answerHeadBytes,
		DisableCompression:     !t.kind.compressed || t.config.DisableCompression,
		DisableKeepAlives:      t.kind.fresh,
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: t.kind.pingAfter, PingTimeout: t.kind.pingWait},
	}
	t.factory.shared.dialer.unresponsive.closeIdleOf(made)
	return made, nil
}

// send sends a request, on a connection of its own if the kind says so.
func (g *generation) send(r *http.Request, kind Purpose) (*http.Response, error) {
	if kind.fresh {
		return singleUseTransport{like: g.http}.RoundTrip(r)
	}
	return g.http.RoundTrip(r)
}

// authority names what upstream's certificate is verified by.
func (g *generation) authority() string {
	if g.trust == nil {
		return ""
	}
	return g.trust.file
}

// freshIdle is how long a connection is kept that was made in vain, since the request that wanted
// it ended meanwhile. freshPingAfter and freshPingTimeout are for the sign of life of its upstream,
// in all as long as for other requests that pass through.
//
// The first two are short since net/http's timers for them hold a connection of HTTP/2, some 16 kB,
// until they expire, also after the connection has ended with its answer.
const (
	freshIdle        = time.Second
	freshPingAfter   = time.Second
	freshPingTimeout = passingPingAfter + passingPingTimeout - freshPingAfter
)

// singleUseTransport sends each request on a connection of its own, over HTTP/2 if upstream speaks
// that: there an answer may begin, and end, before the request does. The connection ends with the
// answer, and no other request can end it.
//
// A single transport that keeps no connections alive would not do: requests that begin at once find
// each other's new connections of HTTP/2 in its pool, and the second one on it has lost a body that
// was closed on the way. So each request has a pool of its own.
type singleUseTransport struct {
	like *http.Transport // never used itself
}

// RoundTrip implements http.RoundTripper.
func (f singleUseTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return f.like.Clone().RoundTrip(r)
}
