package conformance

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// Short names for requests and answers, which are named often here.
type (
	request = exchange.Request
	answer  = exchange.Answer
	event   = exchange.Event
)

// endpoint is a way to the cluster, and what the suite knows of the server behind it.
type endpoint struct {
	*exchange.Endpoint
	metrics string       // URL; empty for the API server
	memory  atomic.Int64 // answers that it seems to have given itself
}

func newEndpoint(name, base string, config *rest.Config) *endpoint {
	return &endpoint{Endpoint: exchange.NewEndpoint(name, base, config)}
}

// overHTTP2 is the same way in HTTP/2.
func (e *endpoint) overHTTP2() *endpoint {
	return &endpoint{Endpoint: e.OverHTTP2(), metrics: e.metrics}
}

// fill replaces ${name} by what name stands for.
func (w *world) fill(text string) string {
	for _, name := range slices.Sorted(maps.Keys(w.marks)) {
		text = strings.ReplaceAll(text, "${"+name+"}", w.marks[name])
	}
	return text
}

// watches is how many watches a proxy has served from memory so far. One that ends between the two
// readings would be counted twice. One that is ending may be missing.
func (e *endpoint) watches(t *testing.T) int {
	t.Helper()
	for ended := e.metric(t, "spillway_watch_terminations_total"); ; {
		open := e.metric(t, "spillway_watches")
		before := ended
		if ended = e.metric(t, "spillway_watch_terminations_total"); ended == before {
			return open + ended
		}
	}
}

// metric is the sum of a proxy's metric over all labels.
func (e *endpoint) metric(t *testing.T, name string) int {
	t.Helper()
	return process.Metric(t, e.metrics, name)
}
