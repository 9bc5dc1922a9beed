package serve

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/audit"
	"spillway/internal/auth"
	"spillway/internal/backfill"
	"spillway/internal/cache"
	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/fanout"
	"spillway/internal/flowcontrol"
	"spillway/internal/freshness"
	"spillway/internal/object"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
	"spillway/internal/source"
	"spillway/internal/source/sourcetest"
	"spillway/internal/tracing"
	"spillway/internal/upstream"
	"spillway/internal/upstream/capabilities"
	"spillway/internal/upstream/probes"
	"spillway/internal/upstream/upstreamtest"
	"spillway/internal/watch"
)

var configMaps = fakeapiserver.ObjectResource(fakeapiserver.ConfigMaps)

// customWidgets are fakeapiserver's custom resource.
var customWidgets = object.NewResource(fakeapiserver.Widgets, "Widget", true, false,
	object.Field{Label: "spec.color", Path: []string{"spec", "color"}},
	object.Field{Label: "spec.size", Path: []string{"spec", "size"}})

// rig is a whole proxy but for its command line: fakeapiserver, mirrors of some resources, a Server
// with a plain and a TLS listener.
type rig struct {
	t        *testing.T
	up       *fakeapiserver.Server
	server   *Server
	limiter  *flowcontrol.Limiter
	url      string
	tlsURL   string
	client   *upstream.Client
	catalog  sourcetest.Resources
	registry *prometheus.Registry
	logs     *observer.ObservedLogs
	mirrors  map[schema.GroupVersionResource]*upstream.Reflector
	reviews  *fakeapiserver.Reviews // with access
	access   *Access
}

type rigOptions struct {
	up      fakeapiserver.Options
	stall   time.Duration
	mirrors []*object.Resource
	// prober replaces the prober of each mirror.
	prober func(freshness.Upstream) freshness.Upstream
	// ofUpstream: semantics are upstream's.
	ofUpstream bool
	limits     *cache.HistoryLimits
	// backfill is how many backfills may run at a time; 0: there are none.
	backfill int
	// clients are the limits of what clients may request; impatient: no request waits for one.
	clients   flowcontrol.Limits
	impatient bool
	// connections is how many clients may have; 0: as many as they like.
	connections int
	// as and neverAs are the Forwarder's.
	as      passthrough.Transports
	neverAs []string
	// goroutines: a goroutine for each watch, where there would be writers.
	goroutines bool
	// identity is the listeners'. With IdentitySelf a request without an identity of its own is
	// answered as the proxy.
	identity passthrough.IdentityMode
	// access: requests are reviewed; otherwise all of them are allowed. clientCA is the file of a
	// certificate authority.
	access   bool
	clientCA string
	mutate   func(*Access)
	reviews  int                          // of tokens at a time; 0: as many as usual
	age      func() (time.Duration, bool) // of all states; nil: they are kept current
	stalest  time.Duration                // that is shown
	ready    func() error                 // nil: ReadinessPath passes through
	strict   []string                     // of strict transport security
	audit    *audit.Logger                // nil: no record is kept
	tracer   *tracing.Tracer              // nil: nothing is traced
	broken   *atomic.Bool                 // while it is true, connections break deliveries; nil: never
}

// eachWay runs a test of streams for each of the ways in which they are delivered here.
func eachWay(t *testing.T, f func(t *testing.T, goroutines bool)) {
	t.Helper()
	t.Run("writers", func(t *testing.T) { f(t, false) })
	t.Run("goroutines", func(t *testing.T) { f(t, true) })
}

// newRig returns when every mirror has its first state.
func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	if o.up.ProofDelay == 0 {
		o.up.ProofDelay = 10 * time.Millisecond
	}
	return rigOf(t, fakeapiserver.New(o.up), o)
}

// rigOf is a rig in front of an upstream that has something already.
func rigOf(t *testing.T, up *fakeapiserver.Server, o rigOptions) *rig {
	t.Helper()
	if o.stall == 0 {
		o.stall = time.Minute
	}
	if o.mirrors == nil {
		o.mirrors = []*object.Resource{configMaps, customWidgets}
	}
	if o.limits == nil {
		o.limits = &sourcetest.KeepAll
	}
	core, logs := observer.New(zap.DebugLevel)
	r := &rig{t: t, up: up, catalog: sourcetest.Resources{}, registry: prometheus.NewRegistry(), logs: logs,
		mirrors: map[schema.GroupVersionResource]*upstream.Reflector{}}
	t.Cleanup(r.up.Close)
	r.mirror(o)
	r.serve(o, zap.New(core))
	return r
}

// mirror starts the mirrors.
func (r *rig) mirror(o rigOptions) {
	r.t.Helper()
	client := upstreamtest.NewClient(r.t, r.up.Config())
	r.client = client
	ctx, stop := context.WithCancel(context.Background())
	for _, info := range o.mirrors {
		resource := cache.New(info, *o.limits, time.Now)
		hub := fanout.NewHub(resource)
		var p freshness.Upstream = rigProber{probes.New(client, info)}
		if o.prober != nil {
			p = o.prober(p)
		}
		r.catalog[info.GVR] = &source.Source{Hub: hub, Fresh: freshness.New(resource, p),
			Codec: sourcetest.NewCodec(info)}
		if o.backfill > 0 {
			backfills := backfill.New(hub, rigHistory{probes.NewHistory(client, info)}, backfill.NewWatchLimit(o.backfill))
			r.catalog[info.GVR].Past = backfills
			r.t.Cleanup(backfills.Close)
		}
		reflector := upstream.NewReflector(client, info, resource, upstream.WithPromised(resource.BeginRelist),
			upstream.WithPauses(5*time.Millisecond, 5*time.Millisecond))
		r.mirrors[info.GVR] = reflector
		r.catalog[info.GVR].Warning, r.catalog[info.GVR].Age = reflector.Warning, o.age
		r.catalog[info.GVR].CompressesWatchLists = func() bool {
			return client.Capabilities().WatchListCompression == capabilities.Present
		}
		done := make(chan struct{}, 2)
		go func() {
			_ = reflector.Run(ctx)
			done <- struct{}{}
		}()
		go func() {
			_ = hub.Run(ctx)
			done <- struct{}{}
		}()
		r.t.Cleanup(func() { <-done; <-done })
	}
	r.t.Cleanup(stop)
	for _, source := range r.catalog {
		if err := source.Resource().AwaitRV(deadline(r.t), 1); err != nil {
			r.t.Fatalf("%s was not mirrored: %v", source.Resource().Info, err)
		}
	}
}

// serve starts the server and its listeners.
func (r *rig) serve(o rigOptions, log *zap.Logger) {
	r.t.Helper()
	base, err := url.Parse(r.up.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	passing := bareTransport()
	if o.access {
		r.reviews, r.access = r.up.Reviews(), newAccess(r.t, base, r.registry, o)
		if o.mutate != nil {
			o.mutate(r.access)
		}
	}
	queue := flowcontrol.DefaultQueue
	if o.impatient {
		queue = flowcontrol.Queue{}
	}
	r.limiter = flowcontrol.NewLimiter(o.clients, queue, r.registry)
	r.server = New(Options{
		Semantics: plan.Semantics{OfUpstream: o.ofUpstream, RefusesWatchLists: func() bool {
			return r.client.Capabilities().WatchList == capabilities.Absent
		}},
		Catalog: r.catalog, Own: passing, Ready: o.ready, MaxStaleness: o.stalest, StallTimeout: o.stall,
		Limiter: r.limiter, Goroutines: o.goroutines, Audit: o.audit, Tracer: o.tracer, MaxConnections: o.connections,
		Metrics: NewMetrics(r.registry), Log: log,
		Forwarder: passthrough.NewForwarder(passthrough.ForwarderOptions{Base: base, Client: all(passing), As: o.as,
			NeverAs: o.neverAs, Limiter: r.limiter,
			StallTimeout: o.stall}),
	})
	secured := &front{}
	var served []chan error
	for _, to := range []struct {
		url *string
		tls *tls.Config
	}{{&r.url, nil}, {&r.tlsURL, secured.useTLS(true)}} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		*to.url = "http://" + ln.Addr().String()
		if o.broken != nil {
			ln = breakingListener{ln, o.broken}
		}
		if to.tls != nil {
			*to.url = "https://" + ln.Addr().String()
		}
		if to.tls != nil && o.access {
			to.tls.ClientAuth = tls.RequestClientCert
		}
		done := make(chan error, 1)
		served = append(served, done)
		to := ListenerConfig{TLS: to.tls, Access: r.access, Identity: o.identity, Self: func() *auth.Identity {
			return auth.NewIdentity(authenticationv1.UserInfo{Username: "the proxy"})
		},
			AnswerAll: !o.access && o.identity == passthrough.IdentityClient, StrictTransportSecurity: o.strict}
		go func() { done <- r.server.Serve(ln, to) }()
	}
	r.t.Cleanup(func() {
		r.close()
		for _, done := range served {
			if err := <-done; err != nil {
				r.t.Error(err)
			}
		}
		passing.CloseIdleConnections()
	})
}

// close stops the server at once. It is idempotent.
func (r *rig) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.server.Close(ctx); err != nil {
		r.t.Errorf("closing the server: %v", err)
	}
}

// rigProber shows upstream's prober as the cache wants it, as the command does.
type rigProber struct{ *probes.Prober }

func (p rigProber) Begin(ctx context.Context) (uint64, freshness.Proof, error) {
	rv, probe, err := p.Prober.Begin(ctx)
	if err != nil {
		return 0, nil, err
	}
	return rv, rigProof{probe}, nil
}

type rigProof struct{ *probes.Probe }

func (p rigProof) Prove(ctx context.Context, from uint64) (bookmark, last uint64, err error) {
	progress, err := p.Probe.Prove(ctx, from)
	return max(progress.Bookmark, progress.Last), progress.Last, err
}

// rigHistory adapts probes.History for backfill, as the command does.
type rigHistory struct{ *probes.History }

func (h rigHistory) Begin(ctx context.Context) (uint64, backfill.HistoryWatch, error) {
	rv, stream, err := h.History.Begin(ctx)
	if err != nil {
		return 0, nil, err
	}
	return rv, stream, nil
}

// mirrored waits until the mirror of a resource has all that upstream has of it.
func (r *rig) mirrored(info *object.Resource) {
	r.t.Helper()
	newest := uint64(0)
	for _, o := range r.up.List(info.GVR) {
		newest = max(newest, o.RV)
	}
	if err := r.catalog[info.GVR].Resource().AwaitRV(deadline(r.t), newest); err != nil {
		r.t.Fatal(err)
	}
}

// list sends one GET to the proxy.
func (r *rig) list(path string, opts ...rawclient.RequestOption) *rawclient.ListResult {
	r.t.Helper()
	l, err := rawclient.List(deadline(r.t), r.url, path, opts...)
	if err != nil {
		r.t.Fatalf("GET %s: %v", path, err)
	}
	return l
}

// watch opens a watch of the proxy and waits for its head.
func (r *rig) watch(path string, opts ...rawclient.RequestOption) *rawclient.Watcher {
	r.t.Helper()
	w := rawclient.Watch(deadline(r.t), r.url, path, opts...)
	r.t.Cleanup(w.Close)
	if code, _, err := w.Head(deadline(r.t)); err != nil || code != http.StatusOK {
		r.t.Fatalf("watch %s: %d %v", path, code, err)
	}
	return w
}

// live waits until so many watches are past their initial events. A watch sends its head before
// that.
func (r *rig) live(want int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d live watches", want), func() bool {
		live := 0
		for _, w := range r.server.Watches() {
			if w.Phase == watch.Live {
				live++
			}
		}
		return live == want
	})
}

// expect compares the next events with their String forms.
func expect(t *testing.T, w *rawclient.Watcher, want ...string) {
	t.Helper()
	for i, one := range want {
		e, err := w.Next(deadline(t))
		if err != nil {
			t.Fatalf("event %d: want %q, stream is over: %v", i, one, err)
		}
		if e.String() != one {
			t.Fatalf("event %d: want %q, got %q: %s", i, one, e, e.Line)
		}
	}
}

// until reads on to the first event that is found.
func until(t *testing.T, w *rawclient.Watcher, found func(rawclient.WatchEvent) bool) []rawclient.WatchEvent {
	t.Helper()
	events, err := w.Until(deadline(t), found)
	if err != nil {
		t.Fatalf("after %v: %v", events, err)
	}
	return events
}

func isEnd(e rawclient.WatchEvent) bool { return e.End }

// over waits for the end of a watch and checks how it was.
func over(t *testing.T, w *rawclient.Watcher, want rawclient.Ending) {
	t.Helper()
	end, err := w.Wait(deadline(t))
	if err != nil {
		t.Fatalf("stream did not end: %v", err)
	}
	if end.Reason != want {
		t.Fatalf("want the stream %s, got %v", want, end)
	}
}

// metric is the sum of the series that have these labels, given as name=value, whatever others they
// have. Of a histogram it counts.
func (r *rig) metric(name string, labels ...string) (total float64) {
	r.t.Helper()
	for _, m := range r.series(name, labels...) {
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return total
}

// series are those that have these labels.
func (r *rig) series(name string, labels ...string) (all []*dto.Metric) {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetName()+"="+l.GetValue())
			}
			missing := func(label string) bool { return !slices.Contains(have, label) }
			if family.GetName() == name && !slices.ContainsFunc(labels, missing) {
				all = append(all, m)
			}
		}
	}
	return all
}

// sum is the value of a counter over all its series.
func (r *rig) sum(name string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	total := 0.0
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				total += m.GetCounter().GetValue()
			}
		}
	}
	return total
}

// ended waits until so many watches of a resource have ended for a reason.
func (r *rig) ended(info *object.Resource, reason watch.EndReason, want int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d watches of %s to end: %s", want, info, reason), func() bool {
		return r.metric("spillway_watch_terminations_total", "reason="+string(reason),
			"resource="+info.String()) == float64(want)
	})
}

// shortMemory keeps a few large objects.
var shortMemory = cache.HistoryLimits{HistoryBytes: 64 << 10, HistoryMinAge: time.Hour}

// continueToken is a continue token as upstream makes them (W-80).
func continueToken(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
