package mirror

import (
	"strings"
	"testing"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/fakeapiserver"
	"spillway/internal/flowcontrol"
	"spillway/internal/memory"
	"spillway/internal/passthrough"
	"spillway/internal/serve"
)

// What is given up is given up in this order, and each is what it says; all of it is taken back.
func TestShortOfMemory(t *testing.T) {
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	m := mirroring(t, up, nil, "*", "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	server := serve.New(serve.Options{
		Catalog: m, Forwarder: passthrough.NewForwarder(passthrough.ForwarderOptions{}),
		Limiter: flowcontrol.NewLimiter(flowcontrol.Limits{ListBytes: 1 << 20}, nil),
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
	if m.Find(fakeapiserver.Pods) != nil || m.names() != "configmaps" {
		t.Errorf("%s are mirrored although memory is short", m.names())
	}
	if m.Find(fakeapiserver.ConfigMaps) == nil {
		t.Error("what is mirrored is given up")
	}
	if n := m.turned.Load(); n != 1 {
		t.Errorf("%d requests were turned away", n)
	}
	for i := len(steps) - 1; i >= 0; i-- {
		steps[i].Back()
	}
	m.awaitReady(t, fakeapiserver.Pods)
}

// While a first state is awaited that somebody asked for, others wait for theirs; each gives its
// place back.
func TestFirstStatesQueue(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, func(o *SetOptions) { o.FirstStates = 1 }, "*")
	m.first <- struct{}{} // as if another were on its way
	for _, gvr := range []schema.GroupVersionResource{fakeapiserver.ConfigMaps, fakeapiserver.Pods} {
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
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	m.awaitReady(t, fakeapiserver.Pods)
	eventually(t, "places to be free", func() bool { return len(m.first) == 0 })
}

// What has no state yet when memory gets short is given up, and whoever waits for it hears from
// upstream.
func TestRetreat(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, func(o *SetOptions) { o.FirstStates = 1 }, "*", "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	m.first <- struct{}{}
	waiting := m.Find(fakeapiserver.Pods)
	m.RefuseOnDemand(true)
	m.Retreat()
	if m.names() != "configmaps" || m.Find(fakeapiserver.Pods) != nil || !waiting.Resource().Retired() {
		t.Errorf("mirrors %s; who waits is told: %v", m.names(), waiting.Resource().Retired())
	}
}
