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
	clientHTTP1, err := upstream.ForwardHTTP1(config)
	if err != nil {
		return nil, err
	}
	opts.Client, opts.ClientHTTP1 = bare, clientHTTP1
	if o.plainIdentity == identitySelf {
		opts.Self = own
		if opts.SelfHTTP1, err = upstream.SelfHTTP1(config); err != nil {
			return nil, err
		}
	}
	if o.impersonateClientCerts {
		if opts.As, opts.AsHTTP1, err = impersonators(config, o.impersonationKubeconfig); err != nil {
			return nil, err
		}
	}
	return serve.NewForwarder(opts), nil
}

// impersonators are the transports of somebody who may impersonate. Where upstream is, and whom to trust there, is said by config alone: of
// the kubeconfig nothing counts but who it is.
func impersonators(config *upstream.Config, kubeconfig string) (as, asHTTP1 http.RoundTripper, err error) {
	who, err := upstream.LoadConfig(kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	who = upstream.WithIdentity(config, who)
	if as, err = upstream.Self(who); err != nil {
		return nil, nil, err
	}
	asHTTP1, err = upstream.SelfHTTP1(who)
	return as, asHTTP1, err
}
