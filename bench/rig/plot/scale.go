package plot

import (
	"math"
	"strconv"
)

// scale maps values to places.
type scale struct {
	log       bool
	low, high float64 // of values, or of their powers of ten
	from, to  float64
}

// newLogScale ends at halves of powers of ten.
func newLogScale(values []float64, from, to float64) scale {
	s := scale{log: true, low: math.Inf(1), high: math.Inf(-1), from: from, to: to}
	for _, v := range values {
		s.low, s.high = min(s.low, math.Log10(v)), max(s.high, math.Log10(v))
	}
	s.low, s.high = math.Floor(s.low*2)/2, math.Ceil(s.high*2)/2
	if s.low == s.high {
		s.high += 0.5
	}
	return s
}

// newScale begins at 0 and ends above what is greatest.
func newScale(values []float64, from, to float64) scale {
	s := scale{high: 1e-9, from: from, to: to}
	for _, v := range values {
		s.high = max(s.high, v)
	}
	step := s.step()
	s.high = math.Ceil(s.high/step) * step
	return s
}

func (s scale) at(v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from)
}

// step is the distance of ticks: 1, 2 or 5 of a power of ten, so that there are 4 to 10.
func (s scale) step() float64 {
	power := math.Pow(10, math.Floor(math.Log10(s.high)))
	for _, m := range []float64{0.1, 0.2, 0.5} {
		if s.high/(m*power) <= 10 {
			return m * power
		}
	}
	return power
}

// ticks are 1, 2 and 5 of each power of ten, or steps.
func (s scale) ticks() []float64 {
	var ticks []float64
	if !s.log {
		for i := 0.; i*s.step() <= s.high+1e-9; i++ {
			ticks = append(ticks, i*s.step())
		}
		return ticks
	}
	for e := math.Floor(s.low); e <= s.high; e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if at := math.Log10(v); at >= s.low-1e-9 && at <= s.high+1e-9 {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
}

// label writes a tick, without an exponent.
func label(v float64) string {
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64)
}
