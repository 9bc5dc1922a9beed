package conformance

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
	"spillway/test/framework/relay"
)

// testLateSnapshot plays a script to a watch that has only its head, through a proxy that fixes the
// place of a watch after its head: its events are not the API server's.
func (s *suite) testLateSnapshot(t *testing.T) {
	if s.skew != nil || late.String() == relay.Never {
		t.Skip("no such watch is answered from memory, or an older API server's own may differ")
	}
	proxy := startProxy(t, process.BuildFaultyProxy(t, process.LateSnapshot), "--kubeconfig="+s.proxies,
		"--listen-identity=self", "--listen-allow-connect")
	planted := newEndpoint("planted", proxy.Plain, &rest.Config{Host: proxy.Plain})
	s.mirroring(t, planted)
	// Such a proxy shows nothing else.
	s = &suite{world: s.world, tally: exchange.NewTally()}
	const tries = 20 // some may be answered by the API server, or written to late
	for range tries {
		if problem := s.playAtOnce(t, planted); problem != "" {
			t.Log("caught:", problem)
			return
		}
	}
	t.Error("not caught")
}

// playAtOnce plays the script of ConfigMaps to a watch directly and through a proxy, and says in
// what they differ.
func (s *suite) playAtOnce(t *testing.T, proxied *endpoint) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	p := s.plays()[0]
	a := &watcherGroup{watcher: p.watchers[0], atOnce: true, proxied: []*endpoint{proxied}}
	a.query += marked
	s.openAll(ctx, t, a)
	p.script(t)
	told, err := s.collectAll(ctx, a)
	must(t, err) // the last event is in the state, if that is late
	if problems := s.compareUnmarked(a.watcher, told[s.direct], told[proxied]); len(problems) > 0 {
		return problems[0]
	}
	return ""
}
