package main

import (
	"context"
	"sync"
	"time"

	"spillway/bench/rig"
)

const (
	upstreamWatches  = "apiserver_longrunning_requests"
	upstreamRequests = "apiserver_request_total"
	proofWatches     = "spillway_freshness_watches_total"
)

// sampler looks at the API server's own count of watches of the resource, again and again.
type sampler struct {
	apiserver, proxy *rig.Scraper

	mu          sync.Mutex
	samples     int
	least, most float64
	failed      error
}

// watches is the number of watches of the resource that kube-apiserver serves now.
func (s *sampler) watches(ctx context.Context) (float64, error) {
	m, err := s.apiserver.Read(ctx, upstreamWatches)
	return m.Sum(upstreamWatches, "resource", resource, "verb", "WATCH"), err
}

// proven is the number of proof watches so far.
func (s *sampler) proven(ctx context.Context) (float64, error) {
	m, err := s.proxy.Read(ctx, proofWatches)
	return m.Sum(proofWatches, "resource", resource), err
}

// settled waits until no proof watch has begun for longer than one may last.
func (s *sampler) settled(ctx context.Context) error {
	last, since := -1.0, time.Now()
	for time.Since(since) < longestProof {
		now, err := s.proven(ctx)
		if err != nil {
			return err
		}
		if now != last {
			last, since = now, time.Now()
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// longestProof bounds a proof watch, which has timeoutSeconds of 3.
const longestProof = 4 * time.Second

// run samples until ctx ends.
func (s *sampler) run(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := s.watches(ctx)
		if ctx.Err() != nil {
			return
		}
		s.note(n, err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *sampler) note(n float64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = err
		return
	}
	if s.samples == 0 || n < s.least {
		s.least = n
	}
	if s.samples == 0 || n > s.most {
		s.most = n
	}
	s.samples++
}
