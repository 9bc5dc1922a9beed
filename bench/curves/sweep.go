package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"

	"spillway/bench/rig"
	"spillway/bench/rig/plot"
)

// curvePair is a curve for each side, which grows point by point.
type curvePair struct {
	plot.Plot
	name    string
	measure func(ctx context.Context, server rig.Server, n int) (sample, error)
	sides   []rig.Server // kube-apiserver, Spillway, and perhaps Spillway again
	rounds  int
	ended   []bool // of each side: at the first point that it did not bear in most rounds

	row    string   // what a line of the table is about, with a place for n
	total  string   // what grows
	unit   rig.Unit // of y
	shared bool     // y is for each of what x counts, not for all of it

	scores *rig.Scores
}

// sample is a point as it was measured, and what makes it worth nothing.
type sample struct {
	x, y    float64
	trouble string
}

func (s *show) newSweep(name string, p plot.Plot, measure func(ctx context.Context, server rig.Server, n int) (sample,
	error)) *curvePair {
	return (&curvePair{Plot: p, name: name, measure: measure, rounds: *rounds, scores: s.scores}).between(s.sides())
}

// between says for which sides.
func (s *curvePair) between(sides []rig.Server) *curvePair {
	s.sides, s.ended, s.Curves = sides, make([]bool, len(sides)), make([]plot.Curve, len(sides))
	for i, side := range sides {
		s.Curves[i].Name = side.Name
	}
	return s
}

// measureAt adds the point for n to the curve of each side that has not ended: the medians of
// rounds, in which they take turns.
func (s *curvePair) measureAt(ctx context.Context, n int) error {
	xs, ys, troubles := make([][]float64, len(s.sides)), make([][]float64, len(s.sides)), make([][]string, len(s.sides))
	for range s.rounds {
		for i, server := range s.sides {
			if s.ended[i] {
				continue
			}
			one, err := s.measure(ctx, server, n)
			if err != nil {
				return err
			}
			if one.trouble != "" {
				troubles[i] = append(troubles[i], one.trouble)
				continue
			}
			xs[i], ys[i] = append(xs[i], one.x), append(ys[i], one.y)
		}
	}
	for i := range s.sides {
		s.bear(i, n, troubles[i])
		if s.ended[i] {
			ys[i] = nil
			continue
		}
		x := rig.Median(xs[i])
		if math.Abs(x-float64(n)) > 0.02*x {
			s.scores.Note(fmt.Sprintf(s.row+": %s", n, s.sides[i].Name), "reached %.0f", x)
		}
		s.Curves[i].Points = append(s.Curves[i].Points, plot.Point{X: x, Y: rig.Median(ys[i])})
	}
	s.note(n, ys)
	return nil
}

// bear says what a side did not bear, which Spillway must not do. In most rounds, and it ends.
func (s *curvePair) bear(side, n int, troubles []string) {
	if len(troubles) == 0 {
		return
	}
	say := s.scores.Note
	if side > 0 {
		say = s.scores.Miss
	}
	s.ended[side] = 2*len(troubles) > s.rounds
	say(fmt.Sprintf(s.row+": %s", n, s.sides[side].Name), "not all arrived in %d of %d rounds: %s", len(troubles),
		s.rounds, troubles[0])
}

// note adds lines for a point to the table.
func (s *curvePair) note(n int, ys [][]float64) {
	what := fmt.Sprintf(s.row, n)
	if s.ended[0] {
		s.scores.Figure(what, "", s.unit, ys[1], nil, rig.NoLimit)
	} else {
		s.scores.Ratio(what, s.unit, ys[1], ys[0], rig.NoLimit)
	}
	if len(ys) > 2 {
		s.scores.Figure(what+", plain", "", s.unit, ys[2], nil, rig.NoLimit)
	}
}

// nearLinear is the power of n with which a cost grows.
var nearLinear = rig.AtMost(1.15, 1.05)

// finish draws the curves, and says how they grow.
func (s *curvePair) finish() error {
	const power rig.Unit = "n^%.2f"
	grows := make([][]float64, len(s.Curves))
	for i, c := range s.Curves {
		grows[i] = []float64{c.Power()}
		if s.shared {
			grows[i][0]++
		}
	}
	s.scores.Figure(s.total, "", power, grows[1], grows[0], nearLinear)
	if len(grows) > 2 {
		s.scores.Figure(s.total+", plain", "", power, grows[2], nil, nearLinear)
	}
	file := "curve-" + s.name + ".svg"
	s.scores.Picture(s.Title, file)
	return s.Write(filepath.Join(*into, file))
}
