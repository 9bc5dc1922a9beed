package main

import (
	"maps"
	"slices"

	"spillway/bench/rig"
)

// reportedFailuresLimit bounds the lines about clients of one kind that received something wrong.
const reportedFailuresLimit = 5

// checkWatches checks, by kube-apiserver's own gauge, that the proxy added exactly one watch. Call
// it after sampling has stopped.
func (s *show) checkWatches(proofsAtStart, proofsAtEnd float64) {
	g := s.sampler
	s.report.Check(g.failed == nil && g.samples > 0, "API server's gauge sampled",
		"%d times while all were on and writes went on (error: %v)", g.samples, g.failed)
	s.report.Check(s.before == 0, "no watch of "+resource+" before", "%s{resource=%q,verb=\"WATCH\"} = %.0f",
		upstreamWatches, resource, s.before)
	s.report.Check(g.least-s.before == 1 && g.most-s.before == 1, "upstream watches, while on",
		"rise of %s{resource=%q,verb=\"WATCH\"}: least %.0f, most %.0f (must be exactly 1)", upstreamWatches, resource,
		g.least-s.before, g.most-s.before)
	s.report.Note("proof watches (short)", "%.0f while the watchers started, %.0f until sampling stopped", proofsAtStart,
		proofsAtEnd-proofsAtStart)
}

// checkWatchers checks that each watcher received every event of its scope once and in order.
func (s *show) checkWatchers() {
	expected, seen, restarts, wrong := 0, 0, 0, 0
	starts := map[string]int{}
	for i, w := range s.watchers {
		starts[w.start]++
		expected += len(s.truth.expected(w.scope, w.began))
		seen += len(w.seen)
		restarts += int(w.restarts.Load())
		if err := w.verify(s.truth); err != nil {
			if wrong++; wrong <= reportedFailuresLimit {
				rig.Say("watcher %d (%s, namespace %q, labels %q): %v", i, w.start, w.scope.namespace, w.scope.selector, err)
			}
		}
	}
	for _, start := range slices.Sorted(maps.Keys(starts)) {
		s.report.Note("watchers by start", "%d × %s", starts[start], start)
	}
	s.report.Check(wrong == 0 && expected > 0, "watchers that missed, repeated or reordered",
		"%d of %d; %d events received, %d expected, each compared by type, name and resourceVersion", wrong, len(s.watchers),
		seen, expected)
	s.report.Note("watches resumed by version", "%d", restarts)
}

// checkListers checks that each list holds the state at its version.
func (s *show) checkListers() {
	lists, pages, wrong := 0, 0, 0
	for i, l := range s.listers {
		lists += len(l.lists)
		pages += l.pages
		if err := l.verify(s.truth); err != nil {
			if wrong++; wrong <= reportedFailuresLimit {
				rig.Say("lister %d: %v", i, err)
			}
		}
	}
	s.report.Check(wrong == 0 && lists > 0, "listers with a wrong list",
		"%d of %d; %d lists (RV=0, and exactly that RV in %d pages), each compared with the state at its resourceVersion",
		wrong, len(s.listers), lists, pages)
}
