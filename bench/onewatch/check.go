package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"spillway/bench/rig"
)

// costs are what both sides had used at one moment.
type costs struct {
	proxy, apiserver rig.Usage
	upstreamLists    float64
	cached           map[string]float64
}

func (s *show) measure(ctx context.Context) (costs, error) {
	var c costs
	var err error
	if c.proxy, err = s.proxy.Usage(); err != nil {
		return c, err
	}
	if c.apiserver, err = rig.UsageOf(s.cp.APIServer().Pid()); err != nil {
		return c, err
	}
	m, err := s.sampler.apiserver.Read(ctx, upstreamGets)
	if err != nil {
		return c, err
	}
	c.upstreamLists = m.Sum(upstreamGets, "resource", resource, "verb", "LIST")
	if m, err = s.proxy.Metrics().Read(ctx, cachedRequests); err != nil {
		return c, err
	}
	c.cached = m.By(cachedRequests, "verb")
	return c, nil
}

const cachedRequests = "spillway_cached_requests_total"

// checkWatches is the heart of it: the API server's own count.
func (s *show) checkWatches(proofsAtStart, proofsAtEnd float64) {
	g := s.sampler
	s.report.Check(g.failed == nil && g.samples > 0, "API server's gauge sampled",
		"%d times while all were on and writes went on (error: %v)", g.samples, g.failed)
	s.report.Check(s.before == 0, "no watch of "+resource+" before", "%s{resource=%q,verb=\"WATCH\"} = %.0f",
		upstreamWatches, resource, s.before)
	s.report.Check(g.least-s.before == 1 && g.most-s.before == 1, "upstream watches, while on",
		"rise of %s{resource=%q,verb=\"WATCH\"}: least %.0f, most %.0f (must be exactly 1)", upstreamWatches, resource,
		g.least-s.before, g.most-s.before)
	s.report.Note("proof watches (short)", "%.0f while the watchers started, %.0f while the writes went on", proofsAtStart,
		proofsAtEnd-proofsAtStart)
}

func (s *show) checkWatchers() {
	expected, seen, restarts, wrong := 0, 0, 0, 0
	starts := map[string]int{}
	for i, w := range s.watchers {
		starts[w.start]++
		expected += len(s.truth.expected(w.scope, w.began))
		seen += len(w.seen)
		restarts += int(w.restarts.Load())
		if err := w.verify(s.truth); err != nil {
			if wrong++; wrong <= 5 {
				rig.Say("watcher %d (%s, namespace %q, labels %q): %v", i, w.start, w.scope.namespace, w.scope.selector, err)
			}
		}
	}
	for _, start := range slices.Sorted(maps.Keys(starts)) {
		s.report.Note("watchers by start", "%d × %s", starts[start], start)
	}
	s.report.Check(wrong == 0, "watchers that missed, repeated or reordered",
		"%d of %d; %d events received, %d expected, each compared by type, name and resourceVersion", wrong, len(s.watchers),
		seen, expected)
	s.report.Note("watches resumed by version", "%d", restarts)
}

func (s *show) checkListers() {
	lists, pages, wrong := 0, 0, 0
	for i, l := range s.listers {
		lists += len(l.lists)
		pages += l.pages
		if err := l.verify(s.truth); err != nil {
			if wrong++; wrong <= 5 {
				rig.Say("lister %d: %v", i, err)
			}
		}
	}
	s.report.Check(wrong == 0 && lists > 0, "listers with a wrong list",
		"%d of %d; %d lists (RV=0, and exactly that RV in %d pages), each compared with the state at its resourceVersion",
		wrong, len(s.listers), lists, pages)
}

func (s *show) noteCosts(before, after costs, took time.Duration) {
	events := 0
	for _, w := range s.watchers {
		events += len(w.seen)
	}
	proxy, apiserver := after.proxy.CPU-before.proxy.CPU, after.apiserver.CPU-before.apiserver.CPU
	s.report.Note("LISTs that reached the API server", "%.0f while the writes went on, of %.0f that clients sent",
		after.upstreamLists-before.upstreamLists, after.cached["list"]-before.cached["list"]+
			after.upstreamLists-before.upstreamLists)
	s.report.Note("CPU in "+took.Round(time.Millisecond).String(),
		"proxy %s (%.1f µs per delivered event, LISTs included), API server %s",
		proxy, float64(proxy.Microseconds())/float64(max(events, 1)), apiserver)
	s.report.Note("RSS", "proxy %d MiB, API server %d MiB", after.proxy.RSS>>20, after.apiserver.RSS>>20)
}
