package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"spillway/bench/rig"
	"spillway/bench/rig/swarm"
)

const (
	listedPods = 5000
	listers    = 50
)

// lists compares the delay of events while many large LISTs are answered with that without, both of
// Spillway.
func (s *show) lists(ctx context.Context) error {
	if err := s.CreatePods(ctx, 0, listedPods, 200); err != nil {
		return err
	}
	quiet := s.load(s.Plain())
	busy := quiet
	var bytes int64
	var took time.Duration
	busy.Write = func(ctx context.Context, perSecond float64, burst int, _ time.Duration) (int, error) {
		return s.whileListing(ctx, perSecond, burst, &bytes, &took)
	}
	all, err := swarm.MeasureAll(ctx, *rounds, busy, quiet)
	if err != nil {
		return err
	}
	s.complete("delay among LISTs", all[0])
	s.scores.RatioTo(fmt.Sprintf("delay at %g/s, plain, while %d LISTs of %d pods are read: p99", *rate, listers,
		listedPods), "Spillway without", rig.Millis,
		all[0].Delay(99), all[1].Delay(99), listsLimit)
	s.scores.Note("those LISTs", "%d MiB each, all at once, read within %s", bytes>>20, took.Round(time.Millisecond))
	return nil
}

// whileListing writes for as long as all the LISTs take that are begun at once.
func (s *show) whileListing(ctx context.Context, perSecond float64, burst int, bytes *int64, took *time.Duration) (
	int, error) {
	listing, done := context.WithCancel(ctx)
	defer done()
	written := 0
	var wrote error
	var writing sync.WaitGroup
	writing.Go(func() {
		for listing.Err() == nil && wrote == nil {
			var n int
			n, wrote = s.writer.Run(ctx, perSecond, burst, 200*time.Millisecond)
			written += n
		}
	})
	began := time.Now()
	group, _ := errgroup.WithContext(ctx)
	for range listers {
		group.Go(func() error {
			n, err := swarm.Discard(s.Plain(), rig.AllPods+"?resourceVersion=0")
			if n < 1<<20 && err == nil {
				err = fmt.Errorf("a LIST of %d bytes", n)
			}
			*bytes = n
			return err
		})
	}
	err := group.Wait()
	*took = time.Since(began)
	done()
	writing.Wait()
	if err != nil {
		return written, err
	}
	return written, wrote
}
