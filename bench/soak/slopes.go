package main

import (
	"fmt"
	"path/filepath"
	"time"

	"spillway/bench/rig/plot"
)

const (
	warming = 0.15 // of a run: until then heap and history are filled
	enough  = 5    // looks, to speak of a slope
)

// level is something that must stay as it is, however long clients come and go.
type level struct {
	name, unit string
	of         func(look) float64
	most       func(mean float64) float64 // by which it may rise per hour
	mayFall    bool                       // by more than that
}

// levels are what is held to that. What cannot be told from chance does not count: twice the standard error is taken off.
var levels = []level{
	{"RSS", " MiB", func(l look) float64 { return l.rss }, percent(3), true},
	{"heap after a collection", " MiB", func(l look) float64 { return l.heap }, percent(3), true},
	{"goroutines", "", func(l look) float64 { return l.goroutines }, some(5), false},
	{"file descriptors", "", func(l look) float64 { return l.fds }, some(5), false},
}

func percent(n float64) func(mean float64) float64 {
	return func(mean float64) float64 { return mean * n / 100 }
}

func some(n float64) func(mean float64) float64 { return func(float64) float64 { return n } }

// judgeSlopes says how the levels of the lulls went, after the beginning and while upstream was there.
func (s *show) judgeSlopes(c *course) {
	from := c.began.Add(time.Duration(warming * float64(*duration)))
	counts := func(one look) bool { return one.at.After(from) && !s.outages.excuse(one.at, one.at) }
	for _, l := range levels {
		curve := c.curve(l.name, c.rests, l.of, counts)
		if len(curve.Points) < enough {
			s.report.Note(l.name+" per hour", "%d looks are too few", len(curve.Points))
			continue
		}
		t := newTrend(l, curve)
		s.report.Check(t.flat(), l.name+" per hour", "%s", t)
	}
	p50, p99 := c.curve("p50", c.looks, median, counts), c.curve("p99", c.looks, latest, counts)
	if len(p99.Points) < enough {
		return
	}
	slope, deviation := p99.Trend()
	s.report.Note("lag of the watches that stay", "p50 %.2f ms, p99 %.2f ms on average between two looks; p99 %+.2f ± %.2f ms per hour", p50.Mean(), p99.Mean(), 60*slope, 2*60*deviation)
}

// trend is how a level went, per hour.
type trend struct {
	level
	mean, slope, doubt float64
	allowed            float64
	looks              int
}

func newTrend(l level, curve plot.Curve) trend {
	slope, deviation := curve.Trend() // per minute
	mean := curve.Mean()
	return trend{l, mean, 60 * slope, 2 * 60 * deviation, l.most(mean), len(curve.Points)}
}

func (t trend) flat() bool {
	return t.slope-t.doubt <= t.allowed && (t.mayFall || t.slope+t.doubt >= -t.allowed)
}

// String tells it, and what is allowed.
func (t trend) String() string {
	allowed := fmt.Sprintf("±%.0f", t.allowed)
	if t.mayFall {
		allowed = fmt.Sprintf("%+.1f%s, 3 %%", t.allowed, t.unit)
	}
	return fmt.Sprintf("%+.1f ± %.1f%s of %.0f on average (allowed: %s), from %d looks", t.slope, t.doubt, t.unit, t.mean, allowed, t.looks)
}

// draw draws the course beside the document, and returns the file's name.
func (s *show) draw(c *course, title string) (string, error) {
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
			{Y: "lag, ms", Log: true, Curves: []plot.Curve{c.curve("p99", c.looks, latest, all), c.curve("p50", c.looks, median, all)}},
		},
	}.Write(filepath.Join(filepath.Dir(*results), file))
}

func all(look) bool           { return true }
func median(one look) float64 { return one.p50 }
func latest(one look) float64 { return one.p99 }
