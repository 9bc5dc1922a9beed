package main

import (
	"context"
	"fmt"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/plot"
	"spillway/bench/rig/swarm"
)

const (
	turnTime = time.Minute
	fills    = 15          // turns at most until the history is full
	late     = time.Second // a p99 that is no longer sustained, as in the search for what is
	growth   = 3           // percent by which memory may rise in an hour
	mebibyte = 1 << 20
)

// minuteHistory is how it went: turns of a minute, after each of which garbage is collected.
type minuteHistory struct {
	proxy *rig.Proxy
	pulse func(context.Context) (swarm.Sample, error)

	turns []turn
	rss   plot.Curve // MiB against minutes, before each collection: it rises between two, and is the most there
	heap  plot.Curve // MiB against minutes, after each collection
}

// turn is what a minute showed, without its million delays.
type turn struct {
	at                 float64 // minutes
	p50, p99           time.Duration
	perSecond, perUnit float64 // deliveries, and µs of CPU for each
	cores              float64
	trouble            string // why not each event reached each watch
}

// fill writes until the history has the size that it is going to keep.
func (c *minuteHistory) fill(ctx context.Context) error {
	const history, still = "spillway_history_bytes", 1.01
	before := 0.0
	for range fills {
		if _, err := c.pulse(ctx); err != nil {
			return err
		}
		m, err := c.proxy.Metrics().Read(ctx, history)
		if err != nil {
			return err
		}
		now := m.Sum(history)
		rig.Say("the history has %.1f MiB", now/mebibyte)
		if now < still*before {
			return nil
		}
		before = now
	}
	return fmt.Errorf("the history still grows after %s", fills*turnTime)
}

// run writes for the configured duration.
func (c *minuteHistory) run(ctx context.Context) error {
	c.rss.Name, c.heap.Name = "RSS before a collection", "heap after it"
	began := time.Now()
	for time.Since(began) < *duration {
		one, err := c.pulse(ctx)
		if err != nil {
			return err
		}
		usage, err := c.proxy.Usage()
		if err != nil {
			return err
		}
		memory, err := c.proxy.Memory(ctx)
		if err != nil {
			return err
		}
		at := time.Since(began).Minutes()
		c.rss.Points = append(c.rss.Points, plot.Point{X: at, Y: float64(usage.RSS) / mebibyte})
		c.heap.Points = append(c.heap.Points, plot.Point{X: at, Y: float64(memory.Heap) / mebibyte})
		c.turns = append(c.turns, turn{at, one.Delays.At(50), one.Delays.At(99), one.PerSecond(), one.PerDelivery(),
			one.Cores(), one.Trouble})
	}
	return nil
}

// judge says what became of it.
func (c *minuteHistory) judge(r *rig.Report) {
	var rates, costs, cores, p50 []float64
	var slowest time.Duration
	short, why := 0, ""
	for _, t := range c.turns {
		rates, costs, cores = append(rates, t.perSecond), append(costs, t.perUnit), append(cores, t.cores)
		p50 = append(p50, milliseconds(t.p50))
		slowest = max(slowest, t.p99)
		if t.trouble != "" {
			short, why = short+1, t.trouble
		}
	}
	r.Check(short == 0, "minutes in which an event did not reach a watch", "%d of %d %s", short, len(c.turns), why)
	r.Check(slowest < late, "delay", "p50 %.0f ms, median of the minutes; p99 %.0f ms in the worst of them (allowed: %s)",
		rig.Median(p50), milliseconds(slowest), late)
	r.Note("deliveries", "%.0f per second, with %.2f of one core: %.2f µs for each", rig.Median(rates), rig.Median(cores),
		rig.Median(costs))
	for _, level := range []plot.Curve{c.rss, c.heap} {
		t := rig.NewTrend(level, " MiB", growth)
		r.Check(t.Flat(), level.Name+" per hour", "%s", t)
	}
}

// draw draws it.
func (c *minuteHistory) draw(title string) plot.Stack {
	p50, p99 := plot.Curve{Name: "p50"}, plot.Curve{Name: "p99"}
	for _, t := range c.turns {
		p50.Points = append(p50.Points, plot.Point{X: t.at, Y: milliseconds(t.p50)})
		p99.Points = append(p99.Points, plot.Point{X: t.at, Y: milliseconds(t.p99)})
	}
	return plot.Stack{Title: title, X: "minutes", Panels: []plot.Panel{
		{Y: "MiB", Curves: []plot.Curve{c.rss, c.heap}},
		{Y: "delay, ms", Log: true, Curves: []plot.Curve{p99, p50}},
	}}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
