package main

import (
	"context"
	"encoding/csv"
	"errors"
	"os"
	"slices"
	"strconv"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/plot"
)

// levelSample is how it stood with the proxy at one moment.
type levelSample struct {
	at         time.Time
	rss        float64 // MiB
	heap       float64 // MiB, after a collection; 0: not in a lull
	goroutines float64
	fds        float64
	streams    float64
	p50, p99   float64 // ms: of what was written since the look before; 0 of nothing
}

// levelHistory is how the levels of the proxy went while clients came and went and upstream was
// away now and then.
type levelHistory struct {
	began time.Time
	looks []levelSample // owned by watch
	rests []levelSample // owned by rest: in lulls
}

const (
	looks     = 720             // in a run
	leastWait = 2 * time.Second // between two of them
)

// watch looks until ctx ends.
func (c *levelHistory) watch(ctx context.Context, proxy *rig.Proxy) error {
	tick := time.NewTicker(max(*duration/looks, leastWait))
	defer tick.Stop()
	var said time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		one, err := lookAt(ctx, proxy)
		if ctx.Err() != nil {
			return nil // it is over
		}
		if err != nil {
			return err
		}
		if c.looks = append(c.looks, one); time.Since(said) > 10*time.Second {
			said = one.at
			rig.Say("%.0f goroutines, %.0f file descriptors, %.0f watches, RSS %.1f MiB", one.goroutines, one.fds, one.streams,
				one.rss)
		}
	}
}

// rest looks in a lull, after a collection of garbage.
func (c *levelHistory) rest(ctx context.Context, proxy *rig.Proxy) error {
	memory, err := proxy.Memory(ctx)
	if err != nil {
		return err
	}
	one, err := lookAt(ctx, proxy)
	if err != nil {
		return err
	}
	one.heap = float64(memory.Heap) / mebibyte
	c.rests = append(c.rests, one)
	rig.Say("at rest: %s", describe(&memory))
	return nil
}

const mebibyte = 1 << 20

// lookAt looks at the proxy as it is.
func lookAt(ctx context.Context, proxy *rig.Proxy) (levelSample, error) {
	const goroutines, fds = "go_goroutines", "process_open_fds"
	usage, err := proxy.Usage()
	if err != nil {
		return levelSample{}, err
	}
	m, err := proxy.Metrics().Read(ctx, goroutines, fds, streamsMetric)
	return levelSample{at: time.Now(), rss: float64(usage.RSS) / mebibyte, goroutines: m.Sum(goroutines), fds: m.Sum(fds),
		streams: m.Sum(streamsMetric)}, err
}

// addLags fills in how late events were.
func (c *levelHistory) addLags(all []delivery) {
	for i := range c.looks {
		var these []delivery
		these, all = before(all, c.looks[i].at)
		c.looks[i].p50, c.looks[i].p99 = milliseconds(percentile(these, 50)), milliseconds(percentile(these, 99))
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// curve is one of the levels against minutes, where it is above 0, of the looks that count.
func (c *levelHistory) curve(
	name string,
	looks []levelSample,
	level func(levelSample) float64,
	counts func(levelSample) bool,
) plot.Curve {
	curve := plot.Curve{Name: name}
	for _, one := range looks {
		if y := level(one); y > 0 && counts(one) {
			curve.Points = append(curve.Points, plot.Point{X: one.at.Sub(c.began).Minutes(), Y: y})
		}
	}
	return curve
}

// write writes all looks into a file, one a line.
func (c *levelHistory) write(path string, outages *outages) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := csv.NewWriter(file)
	lines := [][]string{{"seconds", "rss_mib", "heap_mib", "goroutines", "fds", "watches", "lag_p50_ms", "lag_p99_ms",
		"upstream_away"}}
	all := slices.Concat(c.looks, c.rests)
	slices.SortFunc(all, func(a, b levelSample) int { return a.at.Compare(b.at) })
	for _, one := range all {
		line := []string{}
		for _, v := range []float64{one.at.Sub(c.began).Seconds(), one.rss, one.heap, one.goroutines, one.fds, one.streams,
			one.p50, one.p99} {
			line = append(line, strconv.FormatFloat(v, 'f', -1, 64))
		}
		lines = append(lines, append(line, strconv.FormatBool(outages.excuse(one.at, one.at))))
	}
	return out.WriteAll(lines)
}
