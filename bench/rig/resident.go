package rig

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Resident is the memory of a Go process.
type Resident struct {
	RSS  int64 // bytes, as it is
	Held int64 // of those, what is in use after a collection: without the free memory that Go has yet to give back
}

// Gauge reads the memory of a process that serves its metrics and profiles.
type Gauge struct {
	metrics *Scraper
	collect string // the URL that makes it collect garbage
	pid     int
}

// Gauge is that of the proxy.
func (p *Proxy) Gauge() Gauge {
	return Gauge{p.Metrics(), p.MetricsURL + "/debug/pprof/heap?gc=1", p.Pid()}
}

// APIServerGauge is that of the kube-apiserver that is compared.
func (p *Pair) APIServerGauge() Gauge {
	s := p.APIServer
	return Gauge{&Scraper{client: NewTLSClient(s.Token), url: s.URL + "/metrics"}, s.URL + "/debug/pprof/heap?gc=1", s.Pid}
}

// Read collects garbage, gives the process time to return what it does not need, and reads what is left.
func (g Gauge) Read(ctx context.Context) (Resident, error) {
	const settle = 3 * time.Second
	if err := g.gc(ctx); err != nil {
		return Resident{}, err
	}
	time.Sleep(settle)
	if err := g.gc(ctx); err != nil {
		return Resident{}, err
	}
	const idle, released = "go_memstats_heap_idle_bytes", "go_memstats_heap_released_bytes"
	m, err := g.metrics.Read(ctx, idle, released)
	if err != nil {
		return Resident{}, err
	}
	usage, err := UsageOf(g.pid)
	if err != nil {
		return Resident{}, err
	}
	if m.Sum(idle) == 0 {
		return Resident{}, fmt.Errorf("%s does not tell %s", g.metrics.url, idle)
	}
	return Resident{RSS: usage.RSS, Held: usage.RSS - int64(m.Sum(idle)-m.Sum(released))}, nil
}

// gc makes the process collect garbage, twice: what has a finalizer survives the first.
func (g Gauge) gc(ctx context.Context) error {
	for range 2 {
		body, err := Get(ctx, g.metrics.client, g.collect)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, body)
		body.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
