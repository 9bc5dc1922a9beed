package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"spillway/bench/rig"
)

const (
	endsMetric    = "spillway_watch_terminations_total"
	streamsMetric = "spillway_watches"
	waitsMetric   = "spillway_dispatch_stalls_total"
	evictionWords = "evicted a slow client: it stopped reading"
)

// eviction shows that a stalled client is ended for a reason that has a name, and the others are
// not touched.
func (s *show) eviction(ctx context.Context) error {
	p, err := rig.StartProxy(ctx, s.kubeconfig, "--resources="+resource, "--stall-timeout=2s", "--listen-tls=127.0.0.1:0",
		"--insecure-allow-all")
	if err != nil {
		return err
	}
	defer p.Kill()
	ctx, end := context.WithCancel(ctx)
	var players sync.WaitGroup
	defer players.Wait()
	defer end()
	readers := readAll(ctx, p.URL, readerCount, &players)
	for i, base := range []string{p.URL, p.TLSURL} {
		if err := s.evictOne(ctx, p, base, i, readers); err != nil {
			return err
		}
	}
	if err := s.evictLister(ctx, p); err != nil {
		return err
	}
	broken := 0
	for _, r := range readers {
		r.mu.Lock()
		if r.problem != nil {
			broken++
		}
		r.mu.Unlock()
	}
	s.report.Check(broken == 0, "others go on", "%d of %d readers lost their watch", broken, len(readers))
	return s.noWaits(ctx, p, "around the evictions")
}

func (s *show) evictOne(ctx context.Context, p *rig.Proxy, base string, before int, readers []*reader) error {
	c, err := rig.Stall(ctx, base, watchPath+"?watch=true&resourceVersion=0", rig.SmallWindow)
	if err != nil {
		return err
	}
	defer c.Close()
	if !s.streaming(ctx, p, readerCount+1) {
		return fmt.Errorf("the proxy does not serve the watch that is to stall")
	}
	began := time.Now()
	if _, err := s.fill(ctx, readers, fillers); err != nil {
		return err
	}
	evicted := rig.Eventually(ctx, time.Minute, 50*time.Millisecond, func() bool { return s.stalledEnds(ctx, p) > before })
	took := time.Since(began).Round(100 * time.Millisecond)
	s.report.Check(evicted, "evicted, in the metric",
		"%s{resource=%q,reason=\"slow_client_stalled\"} = %d, %s after the first event (%.5s…)", endsMetric, resource,
		s.stalledEnds(ctx, p), took, base)
	logged := 0
	for _, l := range p.Log.With(evictionWords) {
		if l.Field("reason") == "slow_client_stalled" && l.Field("client") == c.Addr().String() {
			s.report.Note("the log line", "%s", l.Text)
			logged++
		}
	}
	s.report.Check(logged == 1, "evicted, in the log", "%d lines with reason=slow_client_stalled and this client", logged)
	n, err := c.End(10 * time.Second)
	s.report.Check(errors.Is(err, syscall.ECONNRESET), "what the client learns", "%v, after %d KiB that its kernel held",
		err, n>>10)
	gone := s.streaming(ctx, p, readerCount)
	s.report.Check(gone, "nothing stays", "%s = %d", streamsMetric, readerCount)
	return nil
}

// evictLister shows that a LIST that its client does not read does not keep its state alive either.
func (s *show) evictLister(ctx context.Context, p *rig.Proxy) error {
	if err := s.writer.fillState(ctx, listObjects); err != nil {
		return err
	}
	before, err := p.Memory(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	c, err := rig.Stall(ctx, p.URL, watchPath+"?resourceVersion=0", rig.SmallWindow)
	if err != nil {
		return err
	}
	defer c.Close()
	opened := rig.Eventually(ctx, time.Minute, 10*time.Millisecond,
		func() bool { return s.openFiles(ctx, p) > before.FDs })
	closed := rig.Eventually(ctx, time.Minute, 50*time.Millisecond,
		func() bool { return s.openFiles(ctx, p) <= before.FDs })
	s.report.Check(opened && closed, "a LIST that is not read", "of %d KiB: hung up after %s", listObjects*largeEvent>>10,
		time.Since(began).Round(100*time.Millisecond))
	n, err := c.End(10 * time.Second)
	s.report.Check(errors.Is(err, syscall.ECONNRESET), "what its client learns", "%v, after %d KiB", err, n>>10)
	return nil
}

// listObjects of largeEvent bytes each are more than the kernel takes for a small window.
const listObjects = 20

// openFiles is how many file descriptors the proxy has open; the scrape's own connection is among
// them each time.
func (s *show) openFiles(ctx context.Context, p *rig.Proxy) int {
	const metric = "process_open_fds"
	m, err := p.Metrics().Read(ctx, metric)
	if err != nil {
		return -1
	}
	return int(m.Sum(metric))
}

func (s *show) stalledEnds(ctx context.Context, p *rig.Proxy) int {
	m, err := p.Metrics().Read(ctx, endsMetric)
	if err != nil {
		return 0
	}
	return int(m.Sum(endsMetric, "resource", resource, "reason", "slow_client_stalled"))
}

// streaming waits until the proxy serves n watches.
func (s *show) streaming(ctx context.Context, p *rig.Proxy, n int) bool {
	return rig.Eventually(ctx, time.Minute, 20*time.Millisecond, func() bool {
		m, err := p.Metrics().Read(ctx, streamsMetric)
		return err == nil && int(m.Sum(streamsMetric, "resource", resource)) == n
	})
}

// noWaits checks that dispatch never waited.
func (s *show) noWaits(ctx context.Context, p *rig.Proxy, when string) error {
	m, err := p.Metrics().Read(ctx, waitsMetric)
	if err != nil {
		return err
	}
	_, known := m[waitsMetric]
	s.report.Check(known && m.Sum(waitsMetric) == 0, "dispatch never waits", "%s = %.0f %s", waitsMetric,
		m.Sum(waitsMetric), when)
	return nil
}
