package rig

import (
	"math/rand/v2"
	"testing"

	"spillway/bench/rig/plot"
)

// A leak just above the allowed rate is found within an hour, beneath the noise of clients that
// come and go; noise is no leak.
func TestTrend(t *testing.T) {
	memory := func(c plot.Curve) Trend { return NewTrend(c, " MiB", 3) }
	files := func(c plot.Curve) Trend { return TrendWithin(c, 5) }
	for _, c := range []struct {
		name           string
		of             func(plot.Curve) Trend
		perHour, noise float64
		flat           bool
	}{
		{"files that stay", files, 0, 10, true},
		{"files that leak", files, 12, 10, false},
		{"files that are lost", files, -12, 10, false}, // the clients that stay are fewer
		{"memory that stays", memory, 0, 5, true},
		{"memory that leaks", memory, 20, 5, false},
		{"memory that is given back", memory, -20, 5, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 1))
			var curve plot.Curve
			for i := range 600 {
				minutes := float64(i) / 10
				curve.Points = append(curve.Points,
					plot.Point{X: minutes, Y: 200 + c.perHour*minutes/60 + c.noise*random.NormFloat64()})
			}
			if trend := c.of(curve); trend.Flat() != c.flat {
				t.Errorf("%g per hour under noise of %g: %s", c.perHour, c.noise, trend)
			}
		})
	}
}
