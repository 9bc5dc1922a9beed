package main

import (
	"net/http"

	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/upstream/transport"
)

// buildForwarder makes what passes requests through, and the limits of clients. The transports are
// never mixed (design D12): each is made of the credentials that it may have.
func (p *process) buildForwarder() (err error) {
	p.limits = serverLimits(p.o.Limits)
	p.limiter = flowcontrol.NewLimiter(p.limits, flowcontrol.DefaultQueue, p.registry)
	opts := passthrough.ForwarderOptions{
		Base: p.client.Base(), IsClaimed: frontProxy(p.o).ReadsHeader, NeverAs: p.o.ImpersonateDenyGroups, Limiter: p.limiter,
		StallTimeout: p.o.StallTimeout, Metrics: passthrough.NewForwardMetrics(p.registry), Log: p.log,
	}
	bare := func(purpose transport.Purpose) (http.RoundTripper, error) { return p.transports.Bare(purpose) }
	if opts.Client, err = newTransports(p.bare, bare); err != nil {
		return err
	}
	if p.actsAsItself() {
		if opts.Self, err = newTransports(p.own, p.transports.Own); err != nil {
			return err
		}
	}
	if p.o.ImpersonateClientCerts {
		if opts.As, err = newImpersonators(p.transports, p.o.ImpersonationKubeconfig); err != nil {
			return err
		}
	}
	p.forwarder = passthrough.NewForwarder(opts)
	return nil
}

// newTransports makes the transports of one identity. shared is the first of them; newOne makes the
// others, with the same credentials.
func newTransports(shared http.RoundTripper, newOne func(transport.Purpose) (http.RoundTripper, error)) (
	passthrough.Transports, error) {
	http1, err := newOne(transport.PassingHTTP1)
	if err != nil {
		return passthrough.Transports{}, err
	}
	fresh, err := newOne(transport.PassingFresh)
	return passthrough.Transports{Any: shared, HTTP1: http1, Fresh: fresh}, err
}

// newImpersonators makes the transports of an identity that may impersonate. Only the credentials
// are read from its kubeconfig: the proxy's own configuration has the address of upstream and its
// authorities.
func newImpersonators(transports *transport.Factory, kubeconfig string) (passthrough.Transports, error) {
	identity, err := transport.LoadConfig(kubeconfig, "")
	if err != nil {
		return passthrough.Transports{}, err
	}
	others, err := transports.As(identity)
	if err != nil {
		return passthrough.Transports{}, err
	}
	shared, err := others.Own(transport.Passing)
	if err != nil {
		return passthrough.Transports{}, err
	}
	return newTransports(shared, others.Own)
}
