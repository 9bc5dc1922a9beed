package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"spillway/bench/rig"
)

// In the search for what a server can sustain.
const (
	sustainedRate  = 100 // events per second; the watchers are as many as the server can take
	sustainedFirst = 250
	sustainedMost  = 8000 // watchers
	sustainedEvery = 10   // one in so many is listened to: reading all takes more than the core that is left
	sustainedP99   = time.Second
)

// sustained compares how many deliveries per second a server on one core sustains, with everything
// else on the other.
func (s *show) sustained(ctx context.Context) error {
	spillway, err := s.most(ctx, s.Spillway, 4*sustainedFirst)
	if err != nil {
		return err
	}
	apiserver, err := s.most(ctx, s.APIServer, sustainedFirst)
	if err != nil {
		return err
	}
	s.scores.Ratio(fmt.Sprintf("deliveries sustained on one core with p99 < 1 s, TLS, %d/s", sustainedRate), rig.PerSecond,
		[]float64{spillway}, []float64{apiserver}, sustainedLimit)
	s.scores.Figure("cores used for that", "", rig.Cores, []float64{s.used[s.Spillway.Name]},
		[]float64{s.used[s.APIServer.Name]}, rig.NoLimit)
	return nil
}

// most searches the greatest number of deliveries per second that arrive in time: the watchers are
// doubled until they are too many, and then half way back there is one try more.
func (s *show) most(ctx context.Context, server rig.Server, first int) (float64, error) {
	release, err := s.Isolate(server)
	if err != nil {
		return 0, err
	}
	defer release()
	best := 0.
	for n := first; ; n *= 2 {
		n = min(n, sustainedMost)
		rate, err := s.bears(ctx, server, n)
		if err != nil {
			return 0, err
		}
		if rate == 0 {
			rate, err := s.bears(ctx, server, int(float64(n)/math.Sqrt2))
			return max(best, rate), err
		}
		best = rate
		if n == sustainedMost {
			s.scores.Note("no end was found to what "+server.Name+" sustains", "%d watchers of %d/s", n, sustainedRate)
			return best, nil
		}
	}
}

// bears returns the deliveries per second to so many watchers, 0 if they are late.
func (s *show) bears(ctx context.Context, server rig.Server, n int) (float64, error) {
	l := s.load(server)
	n -= n % sustainedEvery
	l.Targets, l.Reach, l.Rate, l.Every = slices.Repeat(l.Targets[:1], n), n/sustainedEvery, sustainedRate, sustainedEvery
	one, err := l.Measure(ctx)
	if err != nil || !one.Complete || one.Delays.At(99) >= sustainedP99 {
		return 0, err
	}
	s.used[server.Name] = one.Cores()
	return one.PerSecond(), nil
}
