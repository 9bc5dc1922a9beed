package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/plot"
)

const (
	lookEvery = 5 * time.Second
	mayGrow   = 0.05 // of what it is on average: how much a level may rise, as the line through all its points does
)

// course is how the levels of the proxy went while clients came and went: against minutes, as they are, without collecting garbage.
type course struct {
	began time.Time
	rss   plot.Curve // MiB
	level plot.Curve // goroutines
	files plot.Curve // file descriptors
}

// look adds a point to each.
func (c *course) look(ctx context.Context, proxy *rig.Proxy) error {
	const goroutines, fds = "go_goroutines", "process_open_fds"
	if c.began.IsZero() {
		c.began = time.Now()
	}
	m, err := proxy.Metrics().Read(ctx, goroutines, fds)
	if err != nil {
		return err
	}
	usage, err := proxy.Usage()
	if err != nil {
		return err
	}
	minutes := time.Since(c.began).Minutes()
	add := func(curve *plot.Curve, y float64) { curve.Points = append(curve.Points, plot.Point{X: minutes, Y: y}) }
	add(&c.rss, float64(usage.RSS)/(1<<20))
	add(&c.level, m.Sum(goroutines))
	add(&c.files, m.Sum(fds))
	rig.Say("%.0f goroutines, %.0f file descriptors, RSS %.1f MiB", m.Sum(goroutines), m.Sum(fds), float64(usage.RSS)/(1<<20))
	return nil
}

// judgeCourse says how the levels went. They must stay what they are while watches stay: without these they are what the visits of the
// moment make them.
func (s *show) judgeCourse(c *course) {
	s.judgeLevel("RSS", " MiB", c.rss)
	s.judgeLevel("goroutines", "", c.level)
	s.judgeLevel("file descriptors", "", c.files)
}

func (s *show) judgeLevel(what, unit string, whole plot.Curve) {
	later := plot.Curve{Points: whole.Points[len(whole.Points)/3:]} // until then heap and history are filled
	if len(later.Points) < 2 {
		return
	}
	first, last := later.Points[0], later.Points[len(later.Points)-1]
	minutes := last.X - first.X
	mean, slope := later.Mean(), later.Slope()
	const format = "%+.2f%s per minute, %+.1f %% of the mean of %.0f within %.1f minutes"
	args := []any{slope, unit, 100 * slope * minutes / mean, mean, minutes}
	if *steadyWatches == 0 {
		s.report.Note("slope of "+what, format, args...)
		return
	}
	s.report.Check(slope*minutes <= mayGrow*mean, what+": flat", format, args...)
}

// record writes into the document, and draws.
func (s *show) record(c *course) error {
	const file = "soak.svg"
	title := fmt.Sprintf("RSS, %d watches that stay and %d clients that come and go", *steadyWatches, *crowd)
	rss := c.rss
	rss.Name = "Spillway"
	drawing := plot.Plot{Title: title, X: "minutes", Y: "RSS, MiB", Curves: []plot.Curve{rss}}
	if err := drawing.Write(filepath.Join(filepath.Dir(*results), file)); err != nil {
		return err
	}
	return s.report.Record(*results, title, file)
}
