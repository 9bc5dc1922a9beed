package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"spillway/bench/rig"
)

// samples are durations in the order in which they were measured.
type samples []time.Duration

// rounds is how many parts the samples of a comparison are judged in: a percentile is the median of
// theirs, so that a minute in which something else had the machine decides nothing.
const rounds = 5

// at is a percentile.
func (s samples) at(percent int) time.Duration {
	var of []time.Duration
	for part := range slices.Chunk(s, max(len(s)/rounds, 1)) {
		if len(part) >= len(s)/rounds { // not the few that are left
			of = append(of, part.whole(percent))
		}
	}
	return samples(of).whole(50)
}

// whole is a percentile of all samples together.
func (s samples) whole(percent int) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// text writes a duration no more exactly than it was measured.
func text(d time.Duration) string {
	if d < 100*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// pairs are the same requests both ways.
type pairs struct {
	direct, proxied samples
	bytes           int64 // of one answer
}

// pairs sends n requests both ways, one right after the other and each of them first as often as
// second: whatever else the machine does, it does to both.
func (s *show) pairs(ctx context.Context, n int, target string) (pairs, error) {
	var p pairs
	for i := range n + n/10 {
		order := []string{s.direct, s.proxy}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, base := range order {
			began := time.Now()
			size, err := fetch(ctx, s.client, base+target)
			if err != nil {
				return p, err
			}
			took := time.Since(began)
			switch {
			case i < n/10: // connections and averages begin
			case base == s.direct:
				p.direct = append(p.direct, took)
			default:
				p.proxied = append(p.proxied, took)
			}
			p.bytes = size
		}
		select {
		case <-time.After(rand.N(10 * time.Millisecond)):
		case <-ctx.Done():
			return p, context.Cause(ctx)
		}
	}
	return p, nil
}

// fetch reads an answer to its end.
func fetch(ctx context.Context, client *http.Client, address string) (int64, error) {
	body, err := rig.Get(ctx, client, address)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	return io.Copy(io.Discard, body)
}

// informers starts informers at random moments and measures how long each takes to have the whole
// state.
func (s *show) informers(ctx context.Context, collection string) (samples, error) {
	var mu sync.Mutex
	var all samples
	group, ctx := errgroup.WithContext(ctx)
	for range *startCount {
		group.Go(func() error {
			took, err := start(ctx, s.client, collection)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took)
			return err
		})
		time.Sleep(rand.N(300 * time.Millisecond))
	}
	return all, group.Wait()
}

// start is what an informer does until it is synced: a stream that ends before it is complete is
// requested again (W-191).
func start(ctx context.Context, client *http.Client, collection string) (time.Duration, error) {
	began := time.Now()
	for {
		w, err := rig.OpenWatch(ctx, client, collection, url.Values{
			"allowWatchBookmarks": {"true"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
			"timeoutSeconds": {"300"},
		})
		if err != nil {
			return 0, err
		}
		complete, err := whole(w)
		w.Close()
		if err != nil && err != io.EOF {
			return 0, fmt.Errorf("informer: %w", err)
		}
		if complete {
			return time.Since(began), nil
		}
	}
}

// whole reads initial events and reports whether they came to their end.
func whole(w *rig.Watch) (bool, error) {
	for {
		e, err := w.Next()
		if err != nil || e.InitialEnd() {
			return err == nil, err
		}
	}
}
