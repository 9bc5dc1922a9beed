package main

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"spillway/internal/admin"
	"spillway/internal/config"
	"spillway/internal/listen"
	"spillway/internal/memory"
	"spillway/internal/mirror"
	"spillway/internal/passthrough"
	"spillway/internal/serve"
	"spillway/internal/upstream/transport"
	"spillway/internal/watchdog"
)

const (
	// writeTimeout is how long one write to the log, or to the audit log, may take until the watchdog
	// names its loop.
	writeTimeout = 2 * time.Second
	// reauthorizerTimeout is how long a reauthorizer may work between two waits. A review is a wait.
	reauthorizerTimeout = 5 * time.Second
)

// start starts the parts and serves until the process drains. It returns early with the reason if
// upstream refuses the configuration. A signal while it waits for upstream is no error.
func (p *process) start(ctx context.Context) error {
	if p.pod != nil {
		p.spawn(func() error { p.pod.projection.Run(p.life.stop); return nil })
	}
	p.spawn(func() error { return p.transports.Run(p.life.stop) })
	p.spawn(func() error { return p.clock.Run(p.life.stop) })
	p.clock.Watch(watchdog.Log, "", writeTimeout, p.sink.Progress)
	if p.record.log != nil {
		p.clock.Watch(watchdog.Audit, "", writeTimeout, p.record.log.Progress)
	}
	serving := sync.OnceFunc(p.serve)
	err := p.startup.await(p.life.drain, p.begin, serving)
	if p.life.drain.Err() != nil { // the signal came first
		return nil //nolint:nilerr // it is the signal's doing
	}
	if err != nil {
		return err
	}
	// Not earlier: a start that fails prints one line alone.
	for _, w := range p.o.Warnings() {
		p.log.Warn(w)
	}
	serving()
	p.spawn(func() error { return p.access.run(p.life.stop, p.clock) }) // also while it drains: watches need reviews
	p.spawn(func() error { return memory.NewPacer(p.server.CountOpen).Run(p.life.stop) })
	if p.guard != nil {
		p.spawn(func() error { return p.guard.Run(p.life.stop) })
	}
	p.budget.announce(p.log)
	announceLimits(p.limits, p.o, p.log)
	p.announce(ctx)
	<-p.life.drain.Done()
	return nil
}

// spawn runs f until shutdown. An error of f ends the process.
func (p *process) spawn(f func() error) {
	p.running.Go(func() error {
		err := f()
		if err != nil {
			p.life.finish()
		}
		return err
	})
}

// begin finds out from upstream what the parts must know before they serve. After an error it may
// be called again.
func (p *process) begin(ctx context.Context) error {
	return p.client.ExplainUnauthorized(p.beginParts(ctx))
}

func (p *process) beginParts(ctx context.Context) error {
	if err := p.client.Check(ctx); err != nil {
		return err
	}
	if err := p.access.begin(ctx); err != nil {
		return err
	}
	if err := p.record.begin(ctx, p.client, p.o); err != nil {
		return err
	}
	err := p.mirrors.Begin(ctx)
	if unresolved := (*mirror.ResourcesError)(nil); errors.As(err, &unresolved) {
		return refuseFor(p.o, "resources", strings.Join(p.o.Resources, ","), unresolved.Err)
	}
	return err
}

// serve serves on all listeners.
func (p *process) serve() {
	if l := p.listeners.plain; l != nil {
		p.spawn(func() error { return p.server.Serve(l, p.plainConfig()) })
	}
	if l := p.listeners.tls; l != nil {
		p.spawn(func() error { return p.server.Serve(l, p.tlsConfig()) })
	}
	if l := p.listeners.metrics; l != nil {
		// Probes are answered until the very end, with readiness off.
		p.spawn(func() error { return p.metricsEndpoints().Serve(p.life.stop, l) })
	}
}

func (p *process) plainConfig() serve.ListenerConfig {
	front := serve.ListenerConfig{
		Guard:     passthrough.NewPlainGuard(p.o.AcceptHosts, p.o.AcceptOrigins, p.o.ListenAllowConnect),
		Access:    p.access.plain,
		AnswerAll: p.o.InsecureAllowAll,
	}
	if p.actsAsItself() {
		front.Identity, front.Self = passthrough.IdentitySelf, p.record.self.Load
	}
	return front
}

func (p *process) tlsConfig() serve.ListenerConfig {
	return serve.ListenerConfig{
		TLS: p.secure, Access: p.access.tls, AnswerAll: p.o.InsecureAllowAll,
		StrictTransportSecurity: p.o.StrictTransport,
	}
}

func (p *process) metricsEndpoints() *admin.Endpoints {
	endpoints := &admin.Endpoints{
		Health: p.checks, Registry: p.registry, Status: p.reporter, Access: p.access.remote(), Unreachable: p.startup.reason,
		Exemplars: p.traces.tracer != nil, Debug: p.o.Profiling, Log: p.log,
	}
	if p.o.UsesMetricsTLS() {
		endpoints.TLS = listen.Speaking(p.secure, "http/1.1")
	}
	return endpoints
}

// announce logs where the proxy serves and with whose rights.
func (p *process) announce(ctx context.Context) {
	upstream := zap.String("upstream", p.source.Config.Host)
	p.log.Info("the API server accepts the proxy", append([]zap.Field{upstream}, sourceFields(p.source)...)...)
	if name := os.Getenv("KUBECONFIG"); name != "" && len(p.source.Files) == 0 {
		p.log.Warn("the variable KUBECONFIG is not read in a pod: --kubeconfig names a file", zap.String("KUBECONFIG", name))
	}
	if l := p.listeners.plain; l != nil {
		fields := []zap.Field{zap.Stringer("address", l.Addr()), upstream}
		if p.actsAsItself() {
			fields = append(fields, zap.String("identity", p.client.DescribeIdentity(ctx)))
		} else {
			fields = append(fields, zap.String("identity", "of each client's token; without a token, system:anonymous"))
		}
		p.log.Info("serving plain HTTP", append(fields, ownerField(p.access.plain)...)...)
	}
	if l := p.listeners.tls; l != nil {
		fields := []zap.Field{zap.Stringer("address", l.Addr()), upstream}
		p.log.Info("serving HTTPS", append(fields, ownerField(p.access.tls)...)...)
	}
	if l := p.listeners.metrics; l != nil {
		p.log.Info(metricsMessage(p.o, l.Addr()), zap.Stringer("address", l.Addr()))
	}
}

// metricsMessage says what the metrics listener serves. Only a sidecar's has no TLS off loopback,
// and it serves no metrics.
func metricsMessage(o *config.Settings, address net.Addr) string {
	if !o.UsesMetricsTLS() && !listen.IsLoopbackAddr(address) {
		return "serving health"
	}
	return "serving health and metrics"
}

// sourceFields are where the address of upstream and the proxy's credentials come from.
func sourceFields(source transport.ConfigSource) []zap.Field {
	if len(source.Files) == 0 {
		return []zap.Field{zap.String("credentials", source.Credentials())}
	}
	return []zap.Field{zap.Strings("kubeconfig", source.Files), zap.String("context", source.Context),
		zap.String("user", source.User)}
}

// ownerField is the service account that a listener serves alone, if there is one.
func ownerField(a *serve.Access) []zap.Field {
	if a == nil || a.Owner == "" {
		return nil
	}
	return []zap.Field{zap.String("owner", a.Owner)}
}

// actsAsItself reports that requests on the plain listener have the proxy's own rights.
func (p *process) actsAsItself() bool { return p.o.ListenIdentity == config.IdentitySelf }
