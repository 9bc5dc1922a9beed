// Command halfload lets a proxy on a core of its own deliver half of what it sustains, for half an
// hour, and shows that it stays as it is: each event arrives, and in time, and memory does not
// grow.
package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/swarm"
)

var (
	duration = flag.Duration("duration", 30*time.Minute, "how long events are written, after the history has filled")
	watchers = flag.Int("watchers", 4000, "watches over TLS")
	rate     = flag.Float64("rate", 100, "events per second")
	results  = flag.String("results", "",
		"write the table into this file too, in place of that between its markers, and draw beside it how the levels went")
)

const (
	objectCount = 64
	objectSize  = 2 << 10 // bytes of JSON
	// one watch in so many is read; of the others what comes is thrown away, as in the search for what
	// is sustained
	listened = 10
)

func main() { rig.Main("halfload", run) }

func run(ctx context.Context, r *rig.Report) error {
	pair, err := rig.StartPair(ctx, "configmaps")
	if err != nil {
		return err
	}
	defer pair.Stop()
	paths, err := pair.CreateConfigMaps(ctx, objectCount, objectSize)
	if err != nil {
		return err
	}
	release, err := pair.Isolate(pair.Spillway)
	if err != nil {
		return err
	}
	defer release()
	target := fmt.Sprintf("%s?watch=true&allowWatchBookmarks=true&timeoutSeconds=%.0f", rig.ConfigMaps,
		(*duration + 2*time.Hour).Seconds())
	load := swarm.Load{
		Options: swarm.Options{Server: pair.Spillway, Targets: slices.Repeat([]string{target}, *watchers),
			Every: listened},
		FromNow: true, Rate: *rate, Burst: 1, While: turnTime, Reach: *watchers / listened,
		Write: pair.NewWriter(paths).Run,
	}
	watches, err := load.Open(ctx)
	if err != nil {
		return err
	}
	defer watches.Close()
	c := &minuteHistory{proxy: pair.Proxy, pulse: func(ctx context.Context) (swarm.Sample, error) {
		return load.Pulse(ctx, watches)
	}}
	if err := c.fill(ctx); err != nil {
		return err
	}
	if err := c.run(ctx); err != nil {
		return err
	}
	lost, how := watches.Lost()
	r.Check(lost == 0, "watches that were lost", "%d of %d", lost, *watchers)
	if lost > 0 {
		r.Note("the first that was lost", "%v", how)
	}
	c.judge(r)
	return record(r, c)
}

// record writes the table into the document, and draws the course beside it, where the flags
// request it.
func record(r *rig.Report, c *minuteHistory) error {
	if *results == "" {
		return nil
	}
	const file = "halfload.svg"
	title := fmt.Sprintf("%d watches, %.0f events per second", *watchers, *rate)
	if err := c.draw(title).Write(filepath.Join(filepath.Dir(*results), file)); err != nil {
		return err
	}
	return r.Record(*results, title, file)
}
