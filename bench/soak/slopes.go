package main

import (
	"path/filepath"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/plot"
)

const (
	warming = 0.15 // of a run: until then heap and history are filled
	enough  = 5    // looks, to speak of a slope
)

// level is something that must stay as it is, however long clients come and go.
type level struct {
	name  string
	of    func(levelSample) float64
	trend func(plot.Curve) rig.Trend
}

// levels are what is held to that.
var levels = []level{
	{"RSS", func(l levelSample) float64 { return l.rss }, memory},
	{"heap after a collection", func(l levelSample) float64 { return l.heap }, memory},
	{"goroutines", func(l levelSample) float64 { return l.goroutines }, few},
	{"file descriptors", func(l levelSample) float64 { return l.fds }, few},
}

func memory(c plot.Curve) rig.Trend { return rig.NewTrend(c, " MiB", 3) }
func few(c plot.Curve) rig.Trend    { return rig.TrendWithin(c, 5) }

// judgeSlopes says how the levels of the quiet periods went, after the beginning and while upstream
// was there.
func (s *show) judgeSlopes(c *levelHistory) {
	from := c.began.Add(time.Duration(warming * float64(*duration)))
	counts := func(one levelSample) bool { return one.at.After(from) && !s.outages.excuse(one.at, one.at) }
	for _, l := range levels {
		curve := c.curve(l.name, c.rests, l.of, counts)
		if len(curve.Points) < enough {
			s.report.Note(l.name+" per hour", "%d looks are too few", len(curve.Points))
			continue
		}
		t := l.trend(curve)
		s.report.Check(t.Flat(), l.name+" per hour", "%s", t)
	}
	p50, p99 := c.curve("p50", c.looks, median, counts), c.curve("p99", c.looks, latest, counts)
	if len(p99.Points) < enough {
		return
	}
	slope, deviation := p99.Trend()
	s.report.Note("lag of the watches that stay",
		"p50 %.2f ms, p99 %.2f ms on average between two looks; p99 %+.2f ± %.2f ms per hour", p50.Mean(), p99.Mean(),
		60*slope, 2*60*deviation)
}

// draw draws the course beside the document, and returns the file's name.
func (s *show) draw(c *levelHistory, title string) (string, error) {
	const file = "soak.svg"
	both := func(l level) []plot.Curve {
		return []plot.Curve{c.curve("with visitors", c.looks, l.of, all), c.curve("in lulls", c.rests, l.of, all)}
	}
	return file, plot.Stack{
		Title: title, X: "minutes", Spans: s.outages.spans(c.began),
		Panels: []plot.Panel{
			{Y: "RSS, MiB", Curves: append(both(levels[0]), c.curve("heap after a collection", c.rests, levels[1].of, all))},
			{Y: "goroutines", Curves: both(levels[2])},
			{Y: "file descriptors", Curves: both(levels[3])},
			{Y: "lag, ms", Log: true, Curves: []plot.Curve{c.curve("p99", c.looks, latest, all),
				c.curve("p50", c.looks, median, all)}},
		},
	}.Write(filepath.Join(filepath.Dir(*results), file))
}

func all(levelSample) bool           { return true }
func median(one levelSample) float64 { return one.p50 }
func latest(one levelSample) float64 { return one.p99 }
