package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"spillway/bench/rig"
	"spillway/test/framework/controlplane"
)

var pulses = flag.Int("pulses", 150, "events per run")

const (
	pairs       = 5
	readerCount = 20
	pulseEvery  = 40 * time.Millisecond
	pulseSize   = 8 << 10
	fillers     = 20 // large events that fill the stalled clients before a run
	tolerance   = 0.25
)

// delivery shows that stalled clients delay no other client.
func (s *show) delivery(ctx context.Context) error {
	p, err := rig.StartProxy(ctx, s.kubeconfig, "--resources="+resource, "--stall-timeout=1h")
	if err != nil {
		return err
	}
	defer p.Kill()
	var with, without, addedWith, addedWithout []time.Duration
	for i := range pairs {
		for _, stalled := range []bool{i%2 == 0, i%2 != 0} { // interleaved, each first in turn
			t, err := s.timed(ctx, p, stalled)
			if err != nil {
				return err
			}
			if stalled {
				with, addedWith = append(with, t.whole), append(addedWith, t.added)
			} else {
				without, addedWithout = append(without, t.whole), append(addedWithout, t.added)
			}
		}
		s.report.Note(fmt.Sprintf("pair %d", i+1), "median delivery %s with, %s without %d stalled clients", round(with[i]),
			round(without[i]), stallers)
	}
	a, b := median(with), median(without)
	ratio := float64(a) / float64(b)
	s.report.Check(ratio < 1+tolerance && ratio > 1/(1+tolerance), "delivery medians within 25 %",
		"%s with, %s without: %+.0f %% (medians of %d runs; from the beginning of the write to the client)", round(a),
		round(b), 100*(ratio-1), pairs)
	s.report.Note("of that, by the proxy",
		"%s with, %s without (medians of how much later than a watch straight at the API server)",
		round(median(addedWith)), round(median(addedWithout)))
	return s.noWaits(ctx, p, "in all runs")
}

// delays are the medians of one run: from the beginning of a write to a client of the proxy, and
// how much later than to a client of the API server.
type delays struct{ whole, added time.Duration }

// timed is one run.
func (s *show) timed(ctx context.Context, p *rig.Proxy, stalled bool) (delays, error) {
	ctx, end := context.WithCancel(ctx)
	var players sync.WaitGroup
	defer players.Wait()
	defer end()
	readers := readAll(ctx, p.URL, readerCount, &players)
	reference := readWith(ctx, s.direct, s.apiserver, 1, &players)
	var clients []*rig.StalledClient
	if stalled {
		var err error
		if clients, err = stallMany(ctx, p.URL, stallers, rig.SmallWindow); err != nil {
			return delays{}, err
		}
		defer closeAll(clients)
	}
	if !s.streaming(ctx, p, readerCount+len(clients)) {
		return delays{}, fmt.Errorf("the proxy does not serve %d watches: %s", readerCount+len(clients),
			s.explain(ctx, p, readers))
	}
	if _, err := s.fill(ctx, readers, fillers); err != nil {
		return delays{}, err
	}
	if stalled && !s.allFull(p, clients) {
		return delays{}, fmt.Errorf("the stalled clients are not")
	}
	all := append(reference, readers...)
	for _, r := range all {
		r.recording(true)
	}
	last, err := s.writer.write(ctx, *pulses, pulseSize, pulseEvery)
	if err != nil {
		return delays{}, err
	}
	if !awaitAll(ctx, all, last) {
		return delays{}, fmt.Errorf("version %d has not reached all readers", last)
	}
	reference[0].recording(false)
	var whole, added []time.Duration
	for _, r := range readers {
		r.recording(false)
		whole = append(whole, r.delays...)
		for version, at := range r.arrived {
			added = append(added, at.Sub(reference[0].arrived[version]))
		}
	}
	if len(whole) != readerCount**pulses || len(added) != len(whole) {
		return delays{}, fmt.Errorf("%d events of %d arrived", len(whole), readerCount**pulses)
	}
	return delays{median(whole), median(added)}, nil
}

// explain says what the proxy serves instead, and what readers say.
func (s *show) explain(ctx context.Context, p *rig.Proxy, readers []*reader) string {
	m, err := p.Metrics().Read(ctx, streamsMetric, endsMetric)
	text := fmt.Sprintf("streams %v, ends %v, error %v", m.By(streamsMetric, "resource"), m.By(endsMetric, "reason"), err)
	for i, r := range readers {
		r.mu.Lock()
		if r.problem != nil {
			text += fmt.Sprintf("; reader %d: %v", i, r.problem)
		}
		r.mu.Unlock()
	}
	return text
}

// allFull reports that the proxy has bytes for every stalled client that it cannot send.
func (s *show) allFull(p *rig.Proxy, clients []*rig.StalledClient) bool {
	for _, c := range clients {
		l, err := s.look(context.Background(), p, []*rig.StalledClient{c})
		if err != nil || l.sender == 0 {
			return false
		}
	}
	return true
}

// recording starts or ends the recording of delays. They may be read once it has ended.
func (r *reader) recording(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record = on
}

func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2]
}

func fromNow() url.Values {
	return url.Values{"resourceVersion": {"0"}, "allowWatchBookmarks": {"true"}}
}

// admin is the identity of the proxy and of the writer.
const admin = controlplane.Admin
