package main

import (
	"context"
	"errors"
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
	"spillway/internal/watchdog"
)

const (
	// logLimit is how long one write to the log, or to the audit log, may take until its loop is
	// called stalled.
	logLimit = 2 * time.Second
	// reauthorizerLimit is that of what a reauthorizer does between two waits, which is no review.
	reauthorizerLimit = 5 * time.Second
)

// start starts the parts and serves until the process drains. It returns early with the reason if
// upstream refuses the configuration. A signal while upstream is awaited is no error.
func (p *process) start(ctx context.Context) error {
	if p.pod != nil {
		p.spawn(func() error { p.pod.projection.Run(p.life.stop); return nil })
	}
	p.spawn(func() error { return p.transports.Run(p.life.stop) })
	p.spawn(func() error { return p.clock.Run(p.life.stop) })
	p.clock.Watch(watchdog.Log, "", logLimit, p.sink.Progress)
	if p.record.log != nil {
		p.clock.Watch(watchdog.Audit, "", logLimit, p.record.log.Progress)
	}
	serving := sync.OnceFunc(p.serve)
	err := p.startup.await(p.life.drain, p.client, p.begin, serving, p.log)
	if p.life.drain.Err() != nil { // the signal came first
		return nil //nolint:nilerr // what a start fails with that is broken off
	}
	if err != nil {
		return err
	}
	// Only now is it certain that it starts: a start that fails says one thing.
	for _, w := range p.o.Warnings() {
		p.log.Warn(w)
	}
	serving()
	p.spawn(func() error { return p.access.run(p.life.stop, p.clock) }) // to the end: no watch goes on without reviews
	p.spawn(func() error { return memory.NewPacer(p.server.CountOpen).Run(p.life.stop) })
	if p.guard != nil {
		p.spawn(func() error { return p.guard.Run(p.life.stop) })
	}
	p.budget.announce(p.log)
	announceLimits(p.limits, p.o.Connections(), p.log)
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

// begin finds out from upstream what the parts need to know of it. After an error it may be called
// again.
func (p *process) begin(ctx context.Context) error {
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
		front := serve.ListenerConfig{
			Guard:     passthrough.NewPlainGuard(p.o.AcceptHosts, p.o.AcceptOrigins, p.o.ListenAllowConnect),
			Access:    p.access.plain,
			AnswerAll: p.o.InsecureAllowAll,
		}
		if p.o.ListenIdentity == config.IdentitySelf {
			front.Identity, front.Self = passthrough.IdentitySelf, p.record.self.Load
		}
		p.spawn(func() error { return p.server.Serve(l, front) })
	}
	if l := p.listeners.tls; l != nil {
		front := serve.ListenerConfig{
			TLS: p.secure, Access: p.access.tls, AnswerAll: p.o.InsecureAllowAll,
			StrictTransportSecurity: p.o.StrictTransport,
		}
		p.spawn(func() error { return p.server.Serve(l, front) })
	}
	if l := p.listeners.metrics; l != nil {
		// Probes are answered until the very end, with readiness off.
		endpoints := &admin.Endpoints{
			Health: p.checks, Registry: p.registry, Status: p.reporter, Access: p.access.remote(), Unreachable: p.startup.reason,
			Exemplars: p.traces.tracer != nil, Debug: p.o.Debug, Log: p.log,
		}
		if p.o.MetricsTLS {
			endpoints.TLS = listen.Speaking(p.secure, "http/1.1")
		}
		p.spawn(func() error { return endpoints.Serve(p.life.stop, l) })
	}
}

// announce says where the proxy serves and with whose rights.
func (p *process) announce(ctx context.Context) {
	l, host := p.listeners, p.source.Config.Host
	if l.plain != nil {
		fields := []zap.Field{zap.Stringer("address", l.plain.Addr()), zap.String("upstream", host)}
		if p.o.ListenIdentity == config.IdentitySelf {
			fields = append(fields, zap.String("identity", p.client.Identity(ctx)))
		}
		if p.access.plain != nil && p.access.plain.Owner != "" {
			fields = append(fields, zap.String("owner", p.access.plain.Owner))
		}
		p.log.Info("serving plain HTTP", fields...)
	}
	if l.tls != nil {
		fields := []zap.Field{zap.Stringer("address", l.tls.Addr()), zap.String("upstream", host)}
		if p.access.tls != nil && p.access.tls.Owner != "" {
			fields = append(fields, zap.String("owner", p.access.tls.Owner))
		}
		p.log.Info("serving HTTPS", fields...)
	}
	if l.metrics != nil {
		p.log.Info("serving health and metrics", zap.Stringer("address", l.metrics.Addr()))
	}
}
