package main

import (
	"net/http"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"spillway/internal/serve"
	"spillway/internal/upstream"
)

// newForwarder makes what carries requests through. The transports are never mixed (design D12): each is made of what only it may know.
func newForwarder(config *upstream.Config, base *url.URL, own, bare http.RoundTripper, limiter *serve.Limiter, o *options, registry prometheus.Registerer,
	log *zap.Logger) (*serve.Forwarder, error) {
	opts := serve.ForwarderOptions{
		Base: base, Claims: o.frontProxy.claims, NeverAs: o.impersonateDenyGroups, Limiter: limiter,
		StallTimeout: o.stallTimeout, Metrics: serve.NewForwardMetrics(registry), Log: log,
	}
	var err error
	if opts.Client, err = nobodys(config, bare); err != nil {
		return nil, err
	}
	if o.plainIdentity == identitySelf {
		if opts.Self, err = owners(config, own); err != nil {
			return nil, err
		}
	}
	if o.impersonateClientCerts {
		if opts.As, err = impersonators(config, o.impersonationKubeconfig); err != nil {
			return nil, err
		}
	}
	return serve.NewForwarder(opts), nil
}

// nobodys are the transports without any credentials; shared is upstream.Forward's.
func nobodys(config *upstream.Config, shared http.RoundTripper) (t serve.Transports, err error) {
	t.Any = shared
	if t.HTTP1, err = upstream.ForwardHTTP1(config); err != nil {
		return serve.Transports{}, err
	}
	t.Fresh, err = upstream.ForwardFresh(config)
	return t, err
}

// owners are the transports with the credentials of config; shared is upstream.Self's.
func owners(config *upstream.Config, shared http.RoundTripper) (t serve.Transports, err error) {
	t.Any = shared
	if t.HTTP1, err = upstream.SelfHTTP1(config); err != nil {
		return serve.Transports{}, err
	}
	t.Fresh, err = upstream.SelfFresh(config)
	return t, err
}

// impersonators are the transports of somebody who may impersonate. Where upstream is, and whom to trust there, is said by config alone: of
// the kubeconfig nothing counts but who it is.
func impersonators(config *upstream.Config, kubeconfig string) (serve.Transports, error) {
	who, err := upstream.LoadConfig(kubeconfig)
	if err != nil {
		return serve.Transports{}, err
	}
	who = upstream.WithIdentity(config, who)
	shared, err := upstream.Self(who)
	if err != nil {
		return serve.Transports{}, err
	}
	return owners(who, shared)
}
