package rig

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"
)

// Resident is the memory of a Go process after garbage collections.
type Resident struct {
	RSS  int64 // bytes
	Held int64 // of those, what is in use: without the free memory that Go keeps for what will come
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
	return Gauge{p.Metrics(), p.APIServer.URL + "/debug/pprof/heap?gc=1", p.APIServer.Pid}
}

// Read collects garbage, gives the process a few seconds to return what it does not need, and reads
// what is left.
func (g Gauge) Read(ctx context.Context) (Resident, error) {
	const looks, every = 5, time.Second
	r := Resident{RSS: math.MaxInt64}
	for range looks {
		if err := g.gc(ctx); err != nil {
			return r, err
		}
		time.Sleep(every)
		usage, err := UsageOf(g.pid)
		if err != nil {
			return r, err
		}
		r.RSS = min(r.RSS, usage.RSS)
	}
	const idle, released = "go_memstats_heap_idle_bytes", "go_memstats_heap_released_bytes"
	m, err := g.metrics.Read(ctx, idle, released)
	if err != nil {
		return r, err
	}
	if m.Sum(idle) == 0 {
		return r, fmt.Errorf("%s does not tell %s", g.metrics.url, idle)
	}
	usage, err := UsageOf(g.pid)
	r.Held = usage.RSS - int64(m.Sum(idle)-m.Sum(released))
	return r, err
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
