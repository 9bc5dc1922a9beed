package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"spillway/internal/admin"
	"spillway/internal/health"
	"spillway/internal/listen"
	"spillway/internal/memory"
	"spillway/internal/rotation"
	"spillway/internal/serve"
	"spillway/internal/status"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
)

// run wires the parts and owns their lifetimes: upstream, mirrors, server, listeners. It returns when the process is told to
// stop, or with the first reason why it cannot go on.
func run(ctx context.Context, o *options, log *zap.Logger) error {
	if !o.debug {
		if err := memory.Conceal(); err != nil {
			log.Warn("what is in memory may be read by others of this user", zap.Error(err))
		}
	}
	started, budget := time.Now(), o.applyBudget()
	source, err := upstream.LoadConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	transports, err := transport.New(source, log)
	if err != nil {
		return err
	}
	listeners, err := o.listenAll()
	if err != nil {
		return err
	}
	defer listeners.close()
	client, err := upstream.NewClient(transports)
	if err != nil {
		return err
	}
	defer client.Close()
	life := watchSignals(ctx, o.drainPeriod, log)
	defer life.finish()

	// What needs no upstream comes first: whether it will do is known at once.
	mirrors := newMirrors(life.stop, client, setOptions(o), log)
	registry := admin.NewRegistry()
	registry.MustRegister(newMirrorMetrics(mirrors))
	followed := &rotation.Followed{}
	followed.Add(transports.Files)
	registry.MustRegister(rotation.NewCollector(followed))
	own, err := transports.Own(transport.Passing)
	if err != nil {
		return err
	}
	bare, err := transports.Bare(transport.Passing)
	if err != nil {
		return err
	}
	limits := serverLimits(o.limits)
	limiter := serve.NewLimiter(limits, registry)
	forwarder, err := newForwarder(transports, client.Base(), own, bare, limiter, o, registry, log)
	if err != nil {
		return err
	}
	access, err := newAccess(client, own, bare, followed, o, registry, log)
	if err != nil {
		return err
	}
	pod, err := newPodFiles(o, log)
	if err != nil {
		return err
	}
	secure, err := secureListeners(o, access, pod, followed, log)
	if err != nil {
		return err
	}
	record, err := newAudit(o, registry, log)
	if err != nil {
		return err
	}
	defer record.close()
	traces, err := newTracing(o, log)
	if err != nil {
		return err
	}
	defer traces.close()
	beginning := newBeginning()
	h := &health.Checks{}
	server := serve.New(serve.Options{
		Catalog: mirrors, Forwarder: forwarder, Own: own, MaxStaleness: o.maxStaleness, StallTimeout: o.stallTimeout, Limiter: limiter, Goroutines: o.writers == writersOff,
		MaxConnections: o.connections(), MaxConnectionsPerPeer: o.maxConnectionsPerPeer, Away: beginning.reason,
		Ready: h.Ready,
		Audit: record.log, Tracer: traces.tracer, Metrics: serve.NewMetrics(registry), Log: log,
	})
	var guard *memory.Guard
	if budget.limit != nil {
		guard = memory.NewGuard(budget.limit, server.Outside, memory.Steps(mirrors, server), log)
	}
	registry.MustRegister(memory.NewCollector(guard, mirrors.EncodedBytes, mirrors.RefusedForMemory))
	h.Precede("start", beginning.ready)
	h.Require("mirrors", mirrors.ready)
	h.Require("upstream", mirrors.upstreamReady(o.unreadyWhenAway))
	h.Require("pass-through", mirrors.passThrough)
	h.Require("files", followed.Ready)
	h.Describe(mirrors.describe)

	var group errgroup.Group
	fail := func(f func() error) {
		group.Go(func() error {
			err := f()
			if err != nil {
				life.finish()
			}
			return err
		})
	}
	stands := &standing{host: source.Config.Host, started: started, beginning: beginning, mirrors: mirrors,
		server: server, guard: guard, files: followed}
	reporter := status.NewReporter(stands.report)
	defer reporter.Close()
	listening := sync.OnceFunc(func() {
		serveAll(server, access, secure, listeners, record, o, fail)
		if listeners.metrics != nil {
			// Health is told until the very end, readiness off.
			seen := &admin.Endpoints{
				Health: h, Registry: registry, Status: reporter, Access: access.remote(), Away: beginning.reason,
				Exemplars: traces.tracer != nil, Debug: o.debug, Log: log,
			}
			if o.metricsTLS {
				seen.TLS = listen.Speaking(secure, "http/1.1")
			}
			fail(func() error { return seen.Serve(life.stop, listeners.metrics) })
		}
	})
	begin := func(ctx context.Context) error {
		if err := client.Check(ctx); err != nil {
			return err
		}
		if err := access.begin(ctx); err != nil {
			return err
		}
		if err := record.begin(ctx, client, o); err != nil {
			return err
		}
		err := mirrors.begin(ctx)
		if unresolved := (*ResourcesError)(nil); errors.As(err, &unresolved) {
			return refuseFor(o, "resources", strings.Join(o.resources, ","), unresolved.Err)
		}
		return err
	}
	if pod != nil {
		fail(func() error { pod.projection.Run(life.stop); return nil })
	}
	fail(func() error { return transports.Run(life.stop) })
	refused := beginning.await(life.drain, client, begin, listening, log)
	switch {
	case life.drain.Err() != nil: // it was told to end first
		refused = nil
	case refused == nil:
		// Only now is it certain that it starts: a start that fails says one thing.
		for _, w := range o.warnings() {
			log.Warn(w)
		}
		listening()
		fail(func() error { return access.run(life.stop) }) // to the end: no watch goes on unasked
		if guard != nil {
			fail(func() error { return guard.Run(life.stop) })
		}
		budget.announce(log)
		announceLimits(limits, o.connections(), log)
		announce(ctx, listeners, access, client, source.Config, o, log)
		<-life.drain.Done()
	}
	h.Drain()
	server.Drain(life.stop, o.drainPeriod)
	closing, cancelClosing := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancelClosing()
	if err := server.Close(closing); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		log.Warn("stopping", zap.Error(err))
	}
	life.finish()
	mirrors.wait()
	if err := group.Wait(); refused != nil || err != nil {
		return cmp.Or(refused, err)
	}
	log.Info("stopped")
	return nil
}

// setOptions are the options of the mirrors.
func setOptions(o *options) SetOptions {
	return SetOptions{
		Resources: o.resources, Strict: o.strictResources, MaxOnDemand: o.maxResources,
		IdleTimeout: o.resourceIdleTimeout, CompareInterval: o.consistencyCheckPeriod,
		HistoryBytes: int64(o.historyBytes), HistoryMinAge: o.historyMinAge, BackfillWatches: o.backfillWatches,
		EncodedBytes: int64(o.encodedBytes), EncodedBytesAtLeast: o.leastForms,
		FeedBytes: o.feedBytes, FirstStates: o.firstStates,
		StripManagedFields: o.stripManagedFields, AsksAboutAll: o.asksAboutAll(),
	}
}

// listenerSet is what the proxy listens on; nil where it does not.
type listenerSet struct{ plain, tls, metrics net.Listener }

// listenAll binds every listener before anything is started, so that a port in use costs nothing.
func (o *options) listenAll() (*listenerSet, error) {
	set := &listenerSet{}
	for _, l := range []struct {
		flag, address string
		to            *net.Listener
	}{{"listen", o.listen, &set.plain}, {"listen-tls", o.listenTLS, &set.tls}, {"metrics-listen", o.metricsListen, &set.metrics}} {
		bound, err := o.bind(l.flag, l.address)
		if err != nil {
			set.close()
			return nil, err
		}
		*l.to = bound
	}
	return set, nil
}

// bind opens the listener of the flag named ("listen", "listen-tls", "metrics-listen") at its
// address; nil if the address is empty: the listener is off. An error is one line that names the
// setting and the remedy.
func (o *options) bind(flag, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	listener, err := listen.Open(address, listen.Socket{Mode: o.socketMode, Owner: o.socketOwner})
	switch {
	case errors.Is(err, listen.ErrOwner):
		return nil, o.refuse("listen-owner", o.listenOwner, "the socket cannot be given to it: "+cause(err)+
			"; only root may, or its user to a group that he is in")
	case errors.Is(err, listen.ErrMode):
		return nil, o.refuse("listen-mode", o.listenMode, "the socket cannot have it: "+cause(err))
	case err != nil:
		return nil, o.refuse(flag, address, listen.Problem(err))
	}
	return listener, nil
}

// close closes what is open. Closing twice does no harm.
func (s *listenerSet) close() {
	for _, l := range []net.Listener{s.plain, s.tls, s.metrics} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// secureListeners is how those with TLS are served; nil if there are none.
func secureListeners(o *options, access *access, pod *podFiles, followed *rotation.Followed, log *zap.Logger) (*tls.Config, error) {
	if o.listenTLS == "" && !o.metricsTLS {
		return nil, nil
	}
	options := listen.TLS{HTTP2: o.http2, CertFile: o.tlsCertFile, KeyFile: o.tlsPrivateKeyFile, Log: log}
	if pod != nil {
		options.Pair = &pod.identity.Certificate
	}
	secure, states, err := options.Config()
	if err != nil {
		return nil, err
	}
	if states != nil {
		followed.Add(states)
	}
	if access.tls != nil && pod == nil { // a pod's clients bring tokens
		listen.RequestCertificates(secure, access.tls.Authenticator.Certificates)
	}
	return secure, nil
}

// serveAll serves on the plain and the TLS listener.
func serveAll(server *serve.Server, access *access, secure *tls.Config, l *listenerSet, record *auditLog, o *options, run func(func() error)) {
	if l.plain != nil {
		front := serve.Front{
			Guard:     serve.NewPlainGuard(o.acceptHosts, o.acceptOrigins, o.plainSelfConnect),
			Access:    access.plain,
			AnswerAll: o.insecureAllowAll,
		}
		if o.plainIdentity == identitySelf {
			front.Identity, front.Self = serve.IdentitySelf, record.self.Load
		}
		run(func() error { return server.Serve(l.plain, front) })
	}
	if l.tls != nil {
		tlsFront := serve.Front{TLS: secure, Access: access.tls, AnswerAll: o.insecureAllowAll, StrictTransportSecurity: o.strictTransport}
		run(func() error { return server.Serve(l.tls, tlsFront) })
	}
}

// announce says where the proxy serves and with whose rights.
func announce(ctx context.Context, l *listenerSet, access *access, client *upstream.Client, config *upstream.Config, o *options, log *zap.Logger) {
	if l.plain != nil {
		fields := []zap.Field{zap.Stringer("address", l.plain.Addr()), zap.String("upstream", config.Host)}
		if o.plainIdentity == identitySelf {
			fields = append(fields, zap.String("actsAs", client.Identity(ctx)))
		}
		if access.plain != nil && access.plain.Owner != "" {
			fields = append(fields, zap.String("serves", access.plain.Owner))
		}
		log.Info("serving plain HTTP", fields...)
	}
	if l.tls != nil {
		fields := []zap.Field{zap.Stringer("address", l.tls.Addr()), zap.String("upstream", config.Host)}
		if access.tls != nil && access.tls.Owner != "" {
			fields = append(fields, zap.String("serves", access.tls.Owner))
		}
		log.Info("serving HTTPS", fields...)
	}
	if l.metrics != nil {
		log.Info("serving health and metrics", zap.Stringer("address", l.metrics.Addr()))
	}
}
