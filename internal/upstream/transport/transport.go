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

// answerHeadBytes is how large the head of an answer may be: as large as a request's. net/http
// alone would hold 10 MiB for each.
const answerHeadBytes = 1 << 20

// Transport sends requests by an http.Transport that is replaced when the authorities that it
// trusts, or its certificate, change.
type Transport struct {
	factory *Factory
	kind    Purpose
	bare    bool                    // it shows no certificate
	config  *clienttransport.Config // where exec plugins put certificates and a dialer of theirs

	mu      sync.Mutex // held while a generation is made
	current atomic.Pointer[generation]
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
	return f.newTransport(kind, rest.AnonymousClientConfig(f.base), true)
}

// Own is a transport that adds the credentials of the Factory. A request that has an Authorization
// header keeps it.
func (f *Factory) Own(kind Purpose) (http.RoundTripper, error) {
	cfg := rest.CopyConfig(f.base)
	if hasStaticCredentials(cfg) {
		cfg.ExecProvider = nil // client-go does not run a plugin then, either
	}
	cfg.BearerToken, cfg.BearerTokenFile = "", "" // the Factory's to follow
	t, err := f.newTransport(kind, cfg, false)
	if err != nil {
		return nil, err
	}
	rt, err := f.wrap(t)
	if err != nil {
		return nil, err
	}
	if f.token != nil {
		rt = &bearer{token: f.token, next: rt}
	}
	return &reloadingTransport{refresh: f.refreshCredentials, next: rt}, nil
}

// wrap puts client-go's wrappers around t, which add credentials.
func (f *Factory) wrap(t *Transport) (http.RoundTripper, error) {
	wrap := func(next http.RoundTripper) (http.RoundTripper, error) {
		return clienttransport.HTTPWrappersForConfig(t.config, next)
	}
	if f.plugin == nil {
		return wrap(t)
	}
	return newPatientTransport(f.plugin, wrap, t)
}

func (f *Factory) newTransport(kind Purpose, cfg *rest.Config, bare bool) (*Transport, error) {
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
// authorities has changed by now, the request is sent again: nothing of it has been sent.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.kind.singleUse { // its body may not be there a second time
		t.factory.refreshTrust()
	}
	g, err := t.generation()
	if err != nil {
		return nil, err
	}
	response, err := g.send(r, t.kind)
	if err == nil || !isDistrust(err) {
		return response, err
	}
	t.factory.refreshTrust()
	if newer, failed := t.generation(); failed == nil && newer.trust != g.trust {
		if again := rewind(r); again != nil {
			g = newer
			response, err = g.send(again, t.kind)
		}
	}
	if isDistrust(err) {
		err = &UntrustedError{CA: g.authorityFile(), Err: err}
	}
	return response, err
}

// UntrustedError says that upstream's certificate is not good, and by which authorities.
type UntrustedError struct {
	CA  string // the file; "": the system's
	Err error
}

// Error implements error.
func (e *UntrustedError) Error() string {
	ca := e.CA
	if ca == "" {
		ca = "the system's certificates"
	}
	return fmt.Sprintf("the API server's certificate is not trusted, by %s: %s", ca, e.Err)
}

// Unwrap is what crypto/tls said.
func (e *UntrustedError) Unwrap() error { return e.Err }

// isDistrust reports that upstream showed a certificate that is not good.
func isDistrust(err error) bool { return errors.As(err, new(*tls.CertificateVerificationError)) }

// rewind makes a request that was not sent ready to be sent once more; nil if its body cannot be
// had again.
func rewind(r *http.Request) *http.Request {
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

// CloseIdleConnections closes connections that are not in use.
func (t *Transport) CloseIdleConnections() {
	if g := t.current.Load(); g != nil {
		g.http.CloseIdleConnections()
	}
}

// generation is the one that fits the files as they are now.
func (t *Transport) generation() (*generation, error) {
	if g := t.current.Load(); g != nil && g.fits(t.files()) {
		return g, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	trust, pair := t.files()
	old := t.current.Load()
	if old != nil && old.fits(trust, pair) { // another goroutine made it
		return old, nil
	}
	made, err := t.newHTTP(trust, pair)
	if err != nil {
		return nil, err
	}
	g := &generation{trust: trust, pair: pair, http: made}
	t.current.Store(g)
	if old != nil {
		t.factory.shared.retire(old.http)
	}
	return g, nil
}

func (g *generation) fits(trust *trust, pair *certificate) bool {
	return g.trust == trust && g.pair == pair
}

// files are what the files of the factory hold now.
func (t *Transport) files() (trusted *trust, pair *certificate) {
	if t.factory.trust != nil {
		trusted = t.factory.trust.Get()
	}
	if t.factory.pair != nil && !t.bare {
		pair = t.factory.pair.Get()
	}
	return trusted, pair
}

func (t *Transport) newHTTP(trust *trust, pair *certificate) (*http.Transport, error) {
	secure, err := t.tlsConfig(trust, pair)
	if err != nil {
		return nil, err
	}
	proxy := t.config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!t.kind.http1Only)
	made := &http.Transport{
		Proxy:                  proxy,
		DialContext:            t.config.DialHolder.Dial,
		TLSClientConfig:        secure,
		TLSHandshakeTimeout:    handshakeTimeout,
		IdleConnTimeout:        t.kind.idleTimeout,
		MaxIdleConnsPerHost:    t.kind.idleLimit,
		MaxConnsPerHost:        t.kind.connLimit,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: answerHeadBytes,
		DisableCompression:     !t.kind.decompress || t.config.DisableCompression,
		DisableKeepAlives:      t.kind.singleUse,
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: t.kind.pingAfter, PingTimeout: t.kind.pingTimeout},
	}
	t.factory.shared.inUse.add(made)
	return made, nil
}

func (t *Transport) tlsConfig(trust *trust, pair *certificate) (*tls.Config, error) {
	secure, err := clienttransport.TLSConfigFor(t.config)
	if err != nil {
		return nil, fmt.Errorf("TLS of the kubeconfig: %w", err)
	}
	if secure == nil {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if trust != nil {
		secure.RootCAs = trust.Pool
	}
	plugin := t.factory.plugin
	switch {
	case pair != nil:
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	case plugin != nil && secure.GetClientCertificate != nil:
		secure.GetClientCertificate = plugin.boundCertificate(secure.GetClientCertificate)
	}
	return secure, nil
}

// send sends a request, on a connection of its own if the kind says so.
//
// That ends with the answer, and no other request can end it. Over HTTP/2 an answer may begin, and
// end, before the request does. One transport that keeps no connections alive would not do:
// requests that begin at once find each other's new connections of HTTP/2 in its pool, and the
// second one on a connection has lost a body that was closed on the way. So each request has a pool
// of its own.
func (g *generation) send(r *http.Request, kind Purpose) (*http.Response, error) {
	if kind.singleUse {
		return g.http.Clone().RoundTrip(r)
	}
	return g.http.RoundTrip(r)
}

// authorityFile names what upstream's certificate is verified by.
func (g *generation) authorityFile() string {
	if g.trust == nil {
		return ""
	}
	return g.trust.file
}
