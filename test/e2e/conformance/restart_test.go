package conformance

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// testRestart lets the API server crash and start again. Its own watches break, and it has
// forgotten what was before; watches of the proxy go on, and resume from before (W-115, W-231).
// What they deliver is held against what watches of the API server received before and after.
func (s *suite) testRestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	const path = "/api/v1/namespaces/" + stage + "/configmaps"
	start := s.now(t, path)
	from := request{Target: path + "?watch=1&timeoutSeconds=600&resourceVersion=" + start}
	before, err := s.direct.open(ctx, from)
	must(t, err)
	through, err := s.plain.open(ctx, from)
	must(t, err)
	defer through.cancel()

	s.put(t, configMap(stage, "crash", "x", "1"))
	s.put(t, configMap(stage, "crash", "x", "2"))
	middle := s.put(t, configMap(stage, "crash", "y", "3"))
	reached := func(version string) func(event) bool {
		return func(e event) bool { return e.Version == exchange.Number(version) }
	}
	told := collect(ctx, t, before, reached(middle))
	before.cancel()
	live := collect(ctx, t, through, reached(middle)) // what the mirror has not received yet it would close as a gap

	s.cp.APIServer().Kill()
	must(t, s.cp.StartAPIServer(ctx))
	// A watch that has received this one has closed the gap, and misses nothing from then on: in a
	// gap, a deletion would have another version.
	back := s.put(t, configMap(stage, "crash-over", "x", "1"))
	live = append(live, collect(ctx, t, through, reached(back))...)
	must(t, s.client.CoreV1().ConfigMaps(stage).Delete(ctx, "crash", metav1.DeleteOptions{}))
	end := s.put(t, configMap(stage, "crash", "x", "4"))
	after, err := s.direct.open(ctx, request{Target: path + "?watch=1&timeoutSeconds=600&resourceVersion=" + middle})
	must(t, err)
	defer after.cancel()
	rest := collect(ctx, t, after, func(e event) bool { return e.Type == "ERROR" || e.Version == exchange.Number(end) })
	if rest[0].Type == "ERROR" { // the restarted API server's history begins after middle: see what it holds since
		rest = s.sinceRestart(ctx, t, path, end)
	}
	told = append(told, rest...)

	live = append(live, collect(ctx, t, through, reached(end))...)
	resumed, err := s.plain.open(ctx, from)
	must(t, err)
	defer resumed.cancel()
	again := collect(ctx, t, resumed, reached(end))
	for name, heard := range map[string][]event{"live": live, "resumed": again} {
		s.sameAfterRestart(t, name, told, heard)
	}
	s.refusedOnOneSide(t, from)
}

// sinceRestart is the changes after the API server's restart, by a watch of the API server, which
// began before the first of them.
func (s *suite) sinceRestart(ctx context.Context, t *testing.T, path, end string) []event {
	t.Helper()
	w, err := s.direct.open(ctx, request{Target: path + "?watch=1&timeoutSeconds=600&resourceVersion=" +
		s.oldestKnown(ctx, t, path)})
	must(t, err)
	defer w.cancel()
	return collect(ctx, t, w, func(e event) bool { return e.Version == exchange.Number(end) })
}

// oldestKnown is the resourceVersion that the API server's 410 says one may start from.
func (s *suite) oldestKnown(ctx context.Context, t *testing.T, path string) string {
	t.Helper()
	a, err := s.direct.Do(ctx, request{Target: path + "?watch=1&resourceVersion=1"})
	must(t, err)
	match := exchange.Oldest.FindSubmatch(a.Body)
	if match == nil {
		t.Fatalf("no 410: %s", a.Body)
	}
	return string(match[1])
}

func (s *suite) sameAfterRestart(t *testing.T, name string, told, heard []event) {
	t.Helper()
	line := func(a, b event) bool { return string(a.Line) == string(b.Line) }
	if !slices.EqualFunc(told, heard, line) {
		t.Errorf("%s: told %s\nheard %s", name, summary(told), summary(heard))
		return
	}
	s.show(t, "W-115 W-231", memory)
}

// refusedOnOneSide expects the API server to have forgotten what the proxy still knows.
func (s *suite) refusedOnOneSide(t *testing.T, r request) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	st, err := s.direct.open(ctx, r)
	must(t, err)
	defer st.cancel()
	first := collect(ctx, t, st, func(event) bool { return true })
	if first[0].Type != "ERROR" {
		t.Errorf("the API server still knows what was before its restart: %s", first[0].Line)
		return
	}
	s.tally.Deviated(exchange.DevLongerHistory)
	s.show(t, "W-107 W-231", memory)
}
