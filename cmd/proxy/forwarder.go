package main

import (
	"net/http"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/upstream/transport"
)

// newForwarder makes what passes requests through. The transports are never mixed (design D12):
// each is made of the credentials that it may have.
func newForwarder(transports *transport.Factory, base *url.URL, own, bare http.RoundTripper,
	limiter *flowcontrol.Limiter,
	o *config.Settings, registry prometheus.Registerer,
	log *zap.Logger) (*passthrough.Forwarder, error) {
	opts := passthrough.ForwarderOptions{
		Base: base, IsClaimed: frontProxy(o).ReadsHeader, NeverAs: o.ImpersonateDenyGroups, Limiter: limiter,
		StallTimeout: o.StallTimeout, Metrics: passthrough.NewForwardMetrics(registry), Log: log,
	}
	var err error
	if opts.Client, err = withoutCredentials(transports, bare); err != nil {
		return nil, err
	}
	if o.ListenIdentity == config.IdentitySelf {
		if opts.Self, err = withCredentials(transports, own); err != nil {
			return nil, err
		}
	}
	if o.ImpersonateClientCerts {
		if opts.As, err = impersonators(transports, o.ImpersonationKubeconfig); err != nil {
			return nil, err
		}
	}
	return passthrough.NewForwarder(opts), nil
}

// withoutCredentials are the transports that add no credentials; shared is the first of them.
func withoutCredentials(transports *transport.Factory, shared http.RoundTripper) (t passthrough.Transports, err error) {
	t.Any = shared
	if t.HTTP1, err = transports.Bare(transport.PassingHTTP1); err != nil {
		return passthrough.Transports{}, err
	}
	t.Fresh, err = transports.Bare(transport.PassingFresh)
	return t, err
}

// withCredentials are the transports that add the factory's credentials; shared is the first of
// them.
func withCredentials(transports *transport.Factory, shared http.RoundTripper) (t passthrough.Transports, err error) {
	t.Any = shared
	if t.HTTP1, err = transports.Own(transport.PassingHTTP1); err != nil {
		return passthrough.Transports{}, err
	}
	t.Fresh, err = transports.Own(transport.PassingFresh)
	return t, err
}

// impersonators are the transports of an identity that may impersonate. Only the credentials are
// read from its kubeconfig: the proxy's own configuration has the address of upstream and its
// authorities.
func impersonators(transports *transport.Factory, kubeconfig string) (passthrough.Transports, error) {
	who, err := transport.LoadConfig(kubeconfig)
	if err != nil {
		return passthrough.Transports{}, err
	}
	others, err := transports.As(who)
	if err != nil {
		return passthrough.Transports{}, err
	}
	shared, err := others.Own(transport.Passing)
	if err != nil {
		return passthrough.Transports{}, err
	}
	return withCredentials(others, shared)
}
