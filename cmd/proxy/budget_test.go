package main

import (
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/kubetest"
	"spillway/internal/memory"
	"spillway/internal/serve"
)

// A budget lowers what was not set, and nothing that was; a large one changes nothing.
func TestBudgetLowersLimits(t *testing.T) {
	type limits struct {
		encoded, history, list                     byteSize
		body                                       int64
		watches, watchesPerUser, connectionsAtMost int
		terms, termsPerUser                        int
	}
	f := func(budget int64, want limits, args ...string) {
		t.Helper()
		got := start(nil, args...)
		if got.options == nil {
			t.Fatalf("%v: %s", args, got.stderr)
		}
		o := got.options
		o.lower(budget)
		l := limits{o.encodedBytes, o.historyBytes, o.limits.listBytes, o.limits.bodyBytes, o.limits.watches,
			o.limits.watchesPerUser, o.maxConnections, serverLimits(o.limits).SelectorTerms,
			serverLimits(o.limits).SelectorTermsPerUser}
		if l.connectionsAtMost <= want.connectionsAtMost { // what open files allow may be less
			l.connectionsAtMost = want.connectionsAtMost
		}
		if l != want {
			t.Errorf("%d, %v:\ngot  %+v\nwant %+v", budget, args, l, want)
		}
	}
	const mi = 1 << 20
	f(512*mi, limits{64 * mi, 64 * mi, 256 * mi, 32 * mi, 32768, 16384, 8192, 512 << 10, 128 << 10})
	f(64*mi, limits{8 * mi, 8 * mi, 32 * mi, 4 * mi, 4096, 2048, 1024, 64 << 10, 32 << 10})
	f(1<<40, limits{256 * mi, 64 * mi, 1 << 30, 1 << 36, 100_000, 50_000, 1 << 20, 1 << 20, 128 << 10})
	file := writeFile(t, "conf.yaml", "encoded-bytes: 300Mi\nmax-watches: 0\n")
	f(64*mi, limits{300 * mi, 200 * mi, 32 * mi, 4 * mi, 0, 2048, 1024, 64 << 10, 32 << 10}, "--config="+file,
		"--history-bytes=200Mi")
}

// What is given up is given up in this order, and each is what it says; all of it is taken back.
func TestShortOfMemory(t *testing.T) {
	up := newUpstream(t)
	up.Create(kubetest.ConfigMaps, "n", "a")
	m := mirroring(t, up, nil, "*", "configmaps")
	m.awaitReady(t, kubetest.ConfigMaps)
	server := serve.New(serve.Options{
		Catalog: m, Forwarder: serve.NewForwarder(serve.ForwarderOptions{}), Limiter: serve.NewLimiter(serve.Limits{ListBytes: 1 << 20}, nil),
		Metrics: serve.NewMetrics(nil), Log: zap.NewNop(),
	})
	defer server.Close(t.Context())
	steps := memory.Steps(m, server)
	var names []string
	last := 0.0
	for _, s := range steps {
		names = append(names, s.Name)
		if s.At < last || s.At > 1 {
			t.Errorf("%s at %v, after %v", s.Name, s.At, last)
		}
		last = s.At
	}
	if got := strings.Join(names, " "); got != "encodings segments history feeds selectors resources answers clients" {
		t.Errorf("the order is %s", got)
	}
	for _, s := range steps {
		s.Take()
		if s.Hold != nil {
			s.Hold()
		}
	}
	if m.Find(kubetest.Pods) != nil || m.names() != "configmaps" {
		t.Errorf("%s are mirrored although memory is short", m.names())
	}
	if m.Find(kubetest.ConfigMaps) == nil {
		t.Error("what is mirrored is given up")
	}
	if n := m.turned.Load(); n != 1 {
		t.Errorf("%d requests were turned away", n)
	}
	for i := len(steps) - 1; i >= 0; i-- {
		steps[i].Back()
	}
	m.awaitReady(t, kubetest.Pods)
}

// A proxy with a budget says so, watches over it, and ends as any other.
func TestRunWithinABudget(t *testing.T) {
	up := secureUpstream(t)
	up.Create(kubetest.ConfigMaps, "n", "a")
	p := running(t, up, nil)
	p.ready()
	if p.logs.FilterMessage("memory is limited").Len() != 1 {
		t.Error("the log does not say that memory is limited")
	}
	eventually(t, "what is in use", func() bool {
		code, body := p.get(p.metrics + "/metrics")
		return code == http.StatusOK && strings.Contains(body, "spillway_memory_in_use_bytes ") && !strings.Contains(body, "spillway_memory_in_use_bytes 0\n")
	})
	if _, body := p.get(p.metrics + "/metrics"); !strings.Contains(body, `spillway_memory_degraded{step="clients"} 0`) {
		t.Error("the metrics do not tell of steps")
	}
}

// While a first state is awaited that somebody asked for, others wait for theirs; each gives its place back.
func TestFirstStatesQueue(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, func(o *SetOptions) { o.FirstStates = 1 }, "*")
	m.first <- struct{}{} // as if another were on its way
	for _, gvr := range []schema.GroupVersionResource{kubetest.ConfigMaps, kubetest.Pods} {
		if s := m.Find(gvr); s == nil || s.Resource().Ready() {
			t.Fatalf("%s: %v", gvr.Resource, s)
		}
	}
	for _, one := range m.all() {
		if one.reflector.Status().Replaces != 0 {
			t.Errorf("%s has been listed", one.resource.Info)
		}
	}
	<-m.first
	m.awaitReady(t, kubetest.ConfigMaps)
	m.awaitReady(t, kubetest.Pods)
	eventually(t, "places to be free", func() bool { return len(m.first) == 0 })
}

// What has no state yet when memory gets short is given up, and whoever waits for it hears from upstream.
func TestRetreat(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, func(o *SetOptions) { o.FirstStates = 1 }, "*", "configmaps")
	m.awaitReady(t, kubetest.ConfigMaps)
	m.first <- struct{}{}
	waiting := m.Find(kubetest.Pods)
	m.RefuseOnDemand(true)
	m.Retreat()
	if m.names() != "configmaps" || m.Find(kubetest.Pods) != nil || !waiting.Resource().Retired() {
		t.Errorf("mirrors %s; who waits is told: %v", m.names(), waiting.Resource().Retired())
	}
}
