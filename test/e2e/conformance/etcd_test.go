package conformance

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// testWithoutEtcd freezes etcd: what may be of any age is answered as before, and what must be of
// now is not answered from memory either (W-66, W-217).
func (s *suite) testWithoutEtcd(t *testing.T) {
	recent := s.now(t, c1)
	s.settle(t, allMaps, s.put(t, configMap("c1", "frozen", "x", "1")))
	must(t, s.cp.FreezeEtcd())
	thaw := func() { must(t, s.cp.ThawEtcd()) }
	t.Cleanup(thaw)
	t.Run("reads", func(t *testing.T) {
		s.runAll(t, s.plain, []scenario{
			get("list at 0", "W-66", c1+"?resourceVersion=0", memory, 0),
			get("object at 0", "W-66", c1+"/a?resourceVersion=0", memory, 0),
			get("watch from N", "W-66", c1+"?watch=1&timeoutSeconds=1&resourceVersion="+recent, memory, 0),
			get("watch from 0", "W-66", c1+"?watch=1&timeoutSeconds=1&resourceVersion=0"+marked, memory, 0),
			get("short watch now", "W-66 W-217", c1+"?watch=1&timeoutSeconds=2"+marked, upstream, 0),
		})
		t.Run("watch-list now", s.testUnproven)
		t.Run("reads of now", s.testUnanswered)
	})
	thaw()
	process.Awaiting(t, "a watch-list from memory again", func(ctx context.Context) error {
		a, err := s.plain.Do(ctx, request{Target: allMaps + "?watch=1&timeoutSeconds=7" + informer})
		if err != nil {
			return err
		}
		for _, e := range exchange.SplitEvents(a.Body) {
			if e.End && a.Header.Get(exchange.FlowControl) == "" {
				return nil
			}
		}
		return fmt.Errorf("%d, from upstream: %t", a.Status, a.Header.Get(exchange.FlowControl) != "")
	})
}

// testUnanswered requests what only etcd knows. The API server answers 504 or hangs up, as it
// happens; an answer there is none.
func (s *suite) testUnanswered(t *testing.T) {
	for _, target := range []string{c1 + "?timeout=2s", c1 + "?limit=1&timeout=2s", c1 + "/a?timeout=2s",
		"/api/v1/nodes?timeout=2s"} {
		for _, e := range s.sides() {
			t.Run(e.Name+" "+target, func(t *testing.T) {
				t.Parallel()
				a, err := e.Do(t.Context(), request{Target: target})
				if err == nil && a.Status < 500 {
					t.Errorf("%d %s", a.Status, exchange.Clip(a.Body))
				}
				s.show(t, "W-28 W-66 W-217", upstream)
			})
		}
	}
}

// testUnproven requests a watch-list that cannot be completed: neither side may say that it was
// complete. The API server ends it with an error at its timeout. What the proxy cannot prove passes
// through, and gets the same.
func (s *suite) testUnproven(t *testing.T) {
	t.Parallel()
	direct, proxied := s.both(t, s.plain, request{Target: "/api/v1/namespaces/c1/secrets?watch=1&timeoutSeconds=7" +
		informer}, process.Patience)
	if direct == nil {
		return
	}
	told, heard := exchange.SplitEvents(direct.Body), exchange.SplitEvents(proxied.Body)
	switch refused := direct.Status == http.StatusUnprocessableEntity; {
	case refused && !s.release.Enabled("WatchList"):
		s.tally.Deviated(exchange.DevWatchList)
		if proxied.Status != http.StatusTooManyRequests {
			t.Errorf("the proxy says %d %s", proxied.Status, summary(heard))
		}
	case len(told) != 1 || told[0].Type != "ERROR":
		t.Errorf("the API server says %d %s", direct.Status, summary(told))
	case len(heard) != 1 || heard[0].Type != "ERROR":
		t.Errorf("the proxy says %d %s", proxied.Status, summary(heard))
	}
	if proxied.Cut != nil {
		t.Errorf("the stream was cut: %v", proxied.Cut)
	}
	s.show(t, "W-66 W-215 W-216 W-217", upstream)
}
