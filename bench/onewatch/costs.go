package main

import (
	"context"
	"time"

	"spillway/bench/rig"
)

const cachedRequests = "spillway_cached_requests_total"

// usage is what both sides have used so far, of processors and memory, and how many requests they
// have answered. Its counters are read one after the other.
type usage struct {
	proxy, apiserver rig.Usage
	upstreamLists    float64            // LISTs of the resource that the API server answered
	cachedByVerb     map[string]float64 // answered by the proxy from memory
}

func (s *show) measure(ctx context.Context) (usage, error) {
	var u usage
	var err error
	if u.proxy, err = s.proxy.Usage(); err != nil {
		return u, err
	}
	if u.apiserver, err = rig.UsageOf(s.cp.APIServer().Pid()); err != nil {
		return u, err
	}
	m, err := s.sampler.apiserver.Read(ctx, upstreamRequests)
	if err != nil {
		return u, err
	}
	u.upstreamLists = m.Sum(upstreamRequests, "resource", resource, "verb", "LIST")
	if m, err = s.proxy.Metrics().Read(ctx, cachedRequests); err != nil {
		return u, err
	}
	u.cachedByVerb = m.By(cachedRequests, "verb")
	return u, nil
}

// noteCosts reports what was used between two measurements, which took apart.
func (s *show) noteCosts(before, after usage, took time.Duration) {
	events := 0
	for _, w := range s.watchers {
		events += len(w.seen)
	}
	proxy, apiserver := after.proxy.CPU-before.proxy.CPU, after.apiserver.CPU-before.apiserver.CPU
	upstreamLists := after.upstreamLists - before.upstreamLists
	s.report.Note("LISTs that reached the API server",
		"%.0f until the last watcher was complete, of %.0f that clients sent", upstreamLists,
		after.cachedByVerb["list"]-before.cachedByVerb["list"]+upstreamLists)
	s.report.Note("CPU in "+took.Round(time.Millisecond).String(),
		"proxy %s (%.1f µs per delivered event, LISTs included), API server %s",
		proxy, float64(proxy.Microseconds())/float64(max(events, 1)), apiserver)
	s.report.Note("RSS", "proxy %d MiB, API server %d MiB", after.proxy.RSS>>20, after.apiserver.RSS>>20)
}
