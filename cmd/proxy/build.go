package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"spillway/internal/admin"
	"spillway/internal/config"
	"spillway/internal/flowcontrol"
	"spillway/internal/health"
	"spillway/internal/logging"
	"spillway/internal/memory"
	"spillway/internal/mirror"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
	"spillway/internal/report"
	"spillway/internal/rotation"
	"spillway/internal/serve"
	"spillway/internal/status"
	"spillway/internal/upstream"
	"spillway/internal/upstream/capabilities"
	"spillway/internal/upstream/transport"
	"spillway/internal/watchdog"
)

// process is the parts of the program: build makes them, start starts them, shutdown ends them.
type process struct {
	o         *config.Settings
	log       *zap.Logger
	sink      *logging.Output // of log
	life      lifetime
	began     time.Time
	budget    budget
	listeners *listenerSet

	// of upstream
	source     transport.ConfigSource
	transports *transport.Factory
	own, bare  http.RoundTripper // with the proxy's credentials, and without any
	client     *upstream.Client
	startup    *startup
	mirrors    *mirror.Set

	// of clients
	limits    flowcontrol.Limits
	limiter   *flowcontrol.Limiter
	forwarder *passthrough.Forwarder
	access    *access
	pod       *podFiles   // nil: it is no sidecar
	secure    *tls.Config // nil: no listener has TLS
	record    *auditLog
	traces    *traces
	server    *serve.Server

	// of operators
	clock    *watchdog.Monitor // of the loops of all parts
	registry *prometheus.Registry
	followed *rotation.FollowedFiles
	checks   *health.Checks
	guard    *memory.Guard // nil: there is no limit
	reporter *status.Reporter

	running errgroup.Group
	closers []func() // in the order in which they were made
}

// run builds the parts, starts them and shuts them down. It returns when a signal or ctx ends the
// process, or with the first reason why the process cannot go on.
func run(ctx context.Context, o *config.Settings, log *zap.Logger, sink *logging.Output) error {
	if !o.AllowCoreDumps {
		if err := memory.Conceal(); err != nil {
			log.Warn("what is in memory may be read by others of this user", zap.Error(err))
		}
	}
	p := &process{o: o, log: log, sink: sink, began: time.Now(), budget: applyBudget(o), clock: watchdog.New(log)}
	defer p.close()
	if err := p.build(ctx); err != nil {
		return err
	}
	return p.shutdown(ctx, p.start(ctx))
}

// build makes all parts that need no answer of upstream, so that what cannot be made is known at
// once. Each step uses parts of earlier ones. After an error, too, close ends what was
// made.
func (p *process) build(ctx context.Context) error {
	if err := p.buildUpstream(); err != nil {
		return err
	}
	p.life = watchSignals(ctx, p.o.DrainPeriod, p.log)
	p.closing(p.life.release)
	p.buildMirrors()
	for _, build := range []func() error{
		p.buildForwarder, p.buildAccess, p.buildSidecar, p.buildTLS, p.buildAudit, p.buildTracing,
	} {
		if err := build(); err != nil {
			return err
		}
	}
	p.buildServer()
	p.buildStatus()
	return nil
}

// closing registers f for close, which calls the newest first.
func (p *process) closing(f func()) { p.closers = append(p.closers, f) }

// close undoes what build made, the newest first, also after a build that failed.
func (p *process) close() {
	for _, f := range slices.Backward(p.closers) {
		f()
	}
}

// buildUpstream reads where upstream is, binds the listeners, and makes upstream's client.
func (p *process) buildUpstream() (err error) {
	if p.source, err = transport.LoadConfig(p.o.Kubeconfig, p.o.Context); err != nil {
		return err
	}
	if p.transports, err = transport.New(p.source, p.log); err != nil {
		return err
	}
	if p.listeners, err = listenAll(p.o); err != nil {
		return err
	}
	p.closing(p.listeners.close)
	if p.client, err = upstream.NewClient(p.transports); err != nil {
		return err
	}
	p.closing(p.client.Close)
	if p.own, err = p.transports.Own(transport.Passing); err != nil {
		return err
	}
	p.bare, err = p.transports.Bare(transport.Passing)
	return err
}

// buildMirrors makes the mirrors, and what is followed and measured.
func (p *process) buildMirrors() {
	p.mirrors = mirror.NewSet(p.life.stop, p.client, mirrorOptions(p.o, p.clock), p.log)
	p.registry = admin.NewRegistry()
	registerBuildInfo(p.registry)
	p.registry.MustRegister(mirror.NewCollector(p.mirrors), logging.NewCollector(p.sink), watchdog.NewCollector(p.clock))
	p.followed = &rotation.FollowedFiles{}
	p.followed.Add(p.transports.Files)
	p.registry.MustRegister(rotation.NewCollector(p.followed))
}

// buildAccess makes what authenticates and authorizes clients.
func (p *process) buildAccess() (err error) {
	p.access, err = newAccess(&accessBuilder{
		settings: p.o, client: p.client, own: p.own, bare: p.bare, followed: p.followed, registry: p.registry, log: p.log,
	})
	return err
}

// buildSidecar writes what the other containers of a sidecar's pod read.
func (p *process) buildSidecar() (err error) {
	p.pod, err = newPodFiles(p.o, p.log)
	return err
}

func (p *process) buildAudit() (err error) {
	if p.record, err = newAudit(p.o, p.registry, p.log); err != nil {
		return err
	}
	p.closing(p.record.close)
	return nil
}

func (p *process) buildTracing() (err error) {
	if p.traces, err = newTracing(p.o, p.log); err != nil {
		return err
	}
	p.closing(p.traces.close)
	return nil
}

// buildServer makes the server of clients and the guard of its memory.
func (p *process) buildServer() {
	p.startup, p.checks = newStartup(p.client, p.log.With(sourceFields(p.source)...)), &health.Checks{}
	p.server = serve.New(serve.Options{
		Catalog: p.mirrors, Forwarder: p.forwarder, Own: p.own, Semantics: semantics(p.o, p.client),
		MaxStaleness: p.o.MaxStaleness,
		StallTimeout: p.o.StallTimeout, Limiter: p.limiter, Clock: p.clock,
		MaxConnections: p.o.Connections(), MaxConnectionsPerPeer: p.o.MaxConnectionsPerPeer,
		Unreachable: p.startup.reason, Ready: p.checks.Ready,
		Audit: p.record.log, Tracer: p.traces.tracer, Metrics: serve.NewMetrics(p.registry), Log: p.log,
	})
	if p.budget.limit != nil {
		p.guard = memory.NewGuard(p.budget.limit, p.server.KernelBytes, func(step memory.Step) {
			p.mirrors.Degrade(step)
			p.server.Degrade(step)
		}, p.log)
	}
	p.registry.MustRegister(memory.NewCollector(p.guard, p.mirrors.EncodingCacheBytes, p.mirrors.RefusedForMemory))
}

// buildStatus makes what operators see of the parts.
func (p *process) buildStatus() {
	p.checks.Precede("start", p.startup.ready)
	p.checks.Require("mirrors", p.mirrors.Ready)
	p.checks.Require("upstream", p.mirrors.UpstreamReady(p.o.ReadyzUpstreamTimeout))
	p.checks.Require("capabilities", p.mirrors.DescribeCapabilities)
	p.checks.Require("pass-through", p.mirrors.PassThrough)
	p.checks.Require("files", p.checkFiles)
	p.checks.Describe(p.access.describeReviews)
	p.checks.Describe(p.mirrors.Describe)
	p.checks.Describe(p.clock.Describe)
	parts := &report.Parts{
		Version: versionText(), Host: p.source.Config.Host, Started: p.began, Waiting: p.startup.reason,
		Mirrors: p.mirrors, Server: p.server, Guard: p.guard, Files: p.followed, Clock: p.clock,
	}
	p.reporter = status.NewReporter(parts.Report)
	p.closing(p.reporter.Close)
}

// checkFiles is the check behind /readyz of the files that the proxy follows. A file that cannot be
// used leaves the proxy ready, because its previous content is in use.
func (p *process) checkFiles() (detail string, err error) {
	if unused := p.followed.DescribeUnused(); unused != "" {
		return "", health.Warning(unused)
	}
	return "", nil
}

// semantics are whose answers requests get, by what upstream can do.
func semantics(o *config.Settings, client *upstream.Client) plan.Semantics {
	return plan.Semantics{
		OfUpstream:        o.EmulatedVersion == config.EmulateUpstream,
		RefusesWatchLists: func() bool { return client.Capabilities().WatchList == capabilities.Absent },
	}
}

// mirrorOptions are the options of the mirrors.
func mirrorOptions(o *config.Settings, clock *watchdog.Monitor) mirror.SetOptions {
	named, all := o.NamedResources()
	return mirror.SetOptions{
		Resources: named, OnDemand: all, Strict: o.StrictResources, MaxOnDemand: o.MaxResources,
		IdleTimeout: o.ResourceIdleTimeout, CompareInterval: o.ConsistencyCheckPeriod,
		HistoryBytes: int64(o.HistoryBytes), HistoryMinAge: o.HistoryMinAge, MaxBackfillWatches: o.MaxBackfillWatches,
		EncodingCacheBytes: int64(o.EncodingCacheBytes), EncodedBytesAtLeast: o.MinEncodingCacheBytes,
		FeedBytes: o.FeedBytes, FirstStates: o.FirstStates,
		StripManagedFields: o.StripManagedFields, AsksAboutAll: o.AsksAboutAll(),
		IsClient: o.SidecarDir != "" || o.ListenIdentity == config.IdentitySelf,
		Clock:    clock,
	}
}
