package rig

import (
	"fmt"

	"spillway/bench/rig/plot"
)

// Trend is the slope, per hour, of a level that must stay as it is. What may be chance does not
// count: Doubt, which is twice the standard error of the slope, is taken off.
type Trend struct {
	Unit               string // behind a figure, with the blank in front of it
	Mean, Slope, Doubt float64
	Allowed            float64 // by which it may rise in an hour
	MayFall            bool    // by more than that
	Looks              int
}

// NewTrend is that of a curve against minutes, which may rise by percent of its mean in an hour,
// and fall.
func NewTrend(curve plot.Curve, unit string, percent float64) Trend {
	t := TrendWithin(curve, 0)
	t.Unit, t.Allowed, t.MayFall = unit, t.Mean*percent/100, true
	return t
}

// TrendWithin is that of a curve against minutes, which may neither rise nor fall by more than
// allowed in an hour.
func TrendWithin(curve plot.Curve, allowed float64) Trend {
	slope, deviation := curve.Trend() // per minute
	return Trend{Mean: curve.Mean(), Slope: 60 * slope, Doubt: 2 * 60 * deviation, Allowed: allowed,
		Looks: len(curve.Points)}
}

// Flat reports that it did not go further than it may.
func (t Trend) Flat() bool {
	return t.Slope-t.Doubt <= t.Allowed && (t.MayFall || t.Slope+t.Doubt >= -t.Allowed)
}

// String is the slope, and what is allowed.
func (t Trend) String() string {
	allowed := fmt.Sprintf("±%.0f", t.Allowed)
	if t.MayFall {
		allowed = fmt.Sprintf("%+.1f%s, %.0f %%", t.Allowed, t.Unit, 100*t.Allowed/t.Mean)
	}
	return fmt.Sprintf("%+.1f ± %.1f%s of %.0f on average (allowed: %s), from %d looks", t.Slope, t.Doubt, t.Unit, t.Mean,
		allowed, t.Looks)
}
