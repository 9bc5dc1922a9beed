package upstream

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// idleBelowUpstreams is how long an idle connection of HTTP/1.1 is kept: kube-apiserver closes one after 90 s, and who sends just then
// may get no answer.
const idleBelowUpstreams = time.Minute

// passThroughIdle is how many idle connections are kept for pass-through: as many as clients of a busy proxy use at once over HTTP/1.1.
const passThroughIdle = 256

// Forward is the transport of requests that pass through under their own credentials (design D12): it knows upstream's CA and server name
// and nothing else. No credentials, no client certificate, none of client-go's wrappers; what a request bears is all that upstream sees.
// Bodies keep their Content-Encoding.
func Forward(cfg *rest.Config) (*http.Transport, error) { return bare(cfg, true) }

// ForwardHTTP1 is Forward over HTTP/1.1, which upgrades (exec, port-forward) need and large answers take less of.
func ForwardHTTP1(cfg *rest.Config) (*http.Transport, error) { return bare(cfg, false) }

// ForwardFresh is Forward with a connection for each request.
func ForwardFresh(cfg *rest.Config) (http.RoundTripper, error) {
	t, err := Forward(cfg)
	if err != nil {
		return nil, err
	}
	return newFresh(t), nil
}

// Self is the transport of requests that pass through under the proxy's own credentials. A request that bears an Authorization header of
// its own keeps it.
func Self(cfg *rest.Config) (http.RoundTripper, error) { return own(cfg, nil) }

// SelfHTTP1 is Self over HTTP/1.1.
func SelfHTTP1(cfg *rest.Config) (http.RoundTripper, error) { return own(cfg, []string{"http/1.1"}) }

// SelfFresh is Self with a connection for each request. client-go's own transports are shared by all who have the same TLS options, so it is
// not made of one.
func SelfFresh(cfg *rest.Config) (http.RoundTripper, error) {
	cfg = ownConfig(cfg)
	t, err := newTransport(cfg, true)
	if err != nil {
		return nil, err
	}
	return rest.HTTPWrappersForConfig(cfg, newFresh(t))
}

func own(cfg *rest.Config, protocols []string) (http.RoundTripper, error) {
	cfg = ownConfig(cfg)
	cfg.DisableCompression = true
	cfg.NextProtos = protocols
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		if t := transportBeneath(rt); t != nil { // not yet used by anybody
			watchHealth(t, passingPingAfter, passingPingTimeout)
			if protocols != nil {
				t.MaxIdleConnsPerHost, t.IdleConnTimeout = passThroughIdle, idleBelowUpstreams
			}
		}
		return rt
	})
	return rest.TransportFor(cfg)
}

func bare(cfg *rest.Config, http2 bool) (*http.Transport, error) {
	anonymous := rest.AnonymousClientConfig(cfg)
	anonymous.NextProtos = nil // net/http's to choose, by Protocols
	t, err := newTransport(anonymous, http2)
	if err != nil {
		return nil, err
	}
	t.MaxIdleConnsPerHost = passThroughIdle
	if !http2 {
		t.IdleConnTimeout = idleBelowUpstreams
	}
	return t, nil
}

// newTransport is a plain transport with the TLS side of cfg: its CA, its server name and, if cfg has one, its client certificate.
func newTransport(cfg *rest.Config, http2 bool) (*http.Transport, error) {
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("TLS of the kubeconfig: %w", err)
	}
	proxy := cfg.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	dial := cfg.Dial
	if dial == nil {
		dial = newDialer().DialContext
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(http2)
	t := &http.Transport{
		Proxy:                 proxy,
		DialContext:           dial,
		TLSClientConfig:       tls,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
		Protocols:             protocols,
	}
	watchHealth(t, passingPingAfter, passingPingTimeout)
	return t, nil
}
