package conformance

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// onDemand starts a proxy, until the test ends, that mirrors whatever is requested.
func (s *suite) onDemand(t *testing.T) *endpoint {
	t.Helper()
	p := process.StartProxy(t, process.BuildProxy(t), "--resources=*,secrets", "--kubeconfig="+s.proxies,
		"--listen-identity=self")
	e := newEndpoint("on demand", p.Plain, &rest.Config{Host: p.Plain})
	e.metrics = p.Metrics
	return e
}

// awaitMirror waits until a proxy answers for a collection from memory.
func awaitMirror(t *testing.T, e *endpoint, path string) {
	t.Helper()
	process.Awaiting(t, e.Name+" to mirror "+path, func(ctx context.Context) error {
		a, err := e.Do(ctx, request{Target: path + "?resourceVersion=0"})
		if err == nil && (a.Status != http.StatusOK || a.Header.Get(exchange.FlowControl) != "") {
			err = fmt.Errorf("%d, from upstream: %t", a.Status, a.Header.Get(exchange.FlowControl) != "")
		}
		return err
	})
}

// storyOf opens the same watch on both sides, lets something happen, and compares what both
// received up to their ends, or until they received the last.
func (s *suite) storyOf(t *testing.T, e *endpoint, rules, target string, until func(event) bool, happens func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	r := request{Target: target}
	var streams []*stream
	for _, side := range []*endpoint{s.direct, e} {
		st := s.openFromMemory(ctx, t, side, r)
		defer st.cancel()
		streams = append(streams, st)
	}
	happens()
	var told [2][]event
	for i, st := range streams {
		for line := range st.lines {
			told[i] = append(told[i], exchange.ParseEvent(line))
			if until != nil && until(told[i][len(told[i])-1]) {
				break
			}
		}
		if st.err != nil {
			t.Errorf("the stream was cut: %v", st.err)
		}
	}
	s.sameStory(t, watcher{name: t.Name(), rules: rules, path: target}, e.Name, streams[0], told[0], streams[1], told[1])
}
