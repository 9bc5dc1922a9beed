package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func TestLogScale(t *testing.T) {
	s := newLogScale([]float64{20, 5000}, 0, 100)
	if got := s.at(10); math.Abs(got) > 1e-9 {
		t.Errorf("10 is at %g, want 0", got)
	}
	if got := s.at(10000); math.Abs(got-100) > 1e-9 {
		t.Errorf("10000 is at %g, want 100", got)
	}
	if got, want := s.at(100)-s.at(10), s.at(10000)-s.at(1000); math.Abs(got-want) > 1e-9 {
		t.Errorf("a power of ten is %g here and %g there", got, want)
	}
	if one := newLogScale([]float64{10}, 0, 1); math.IsNaN(one.at(10)) || math.IsInf(one.at(10), 0) {
		t.Errorf("a single value is at %g", one.at(10))
	}
}

func TestScale(t *testing.T) {
	f := func(greatest, high float64, ticks int) {
		t.Helper()
		s := newScale([]float64{3, greatest}, 0, 100)
		if math.Abs(s.high-high) > 1e-9 || len(s.ticks()) != ticks {
			t.Errorf("up to %g: ends at %g, ticks %v", greatest, s.high, s.ticks())
		}
		if got := s.at(0); got != 0 {
			t.Errorf("0 is at %g", got)
		}
	}
	f(10, 10, 11)
	f(47.3, 50, 11)
	f(187, 200, 11)
	f(29.9, 30, 7)
	if got := label(0.30000000000000004); got != "0.3" {
		t.Errorf("a label is %q", got)
	}
}

func TestDrawingIsXMLWithEachPoint(t *testing.T) {
	f := func(log bool, points int) {
		t.Helper()
		text := Plot{Title: "title", X: "x", Y: "y", Log: log, Curves: []Curve{{"a", []Point{{1, 2}, {10, 20}}}, {"b", []Point{{1, 3}, {2, 0}}}}}.SVG()
		if got := strings.Count(text, "<circle"); got != points {
			t.Errorf("%d points were drawn, want %d", got, points)
		}
		for d := xml.NewDecoder(strings.NewReader(text)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in:\n%s", err, text)
			}
		}
	}
	f(true, 3) // what is 0 has no logarithm
	f(false, 4)
}

func TestGrowth(t *testing.T) {
	proportional := Curve{"a", []Point{{1, 3}, {10, 30}, {1000, 3000}}}
	level := Curve{"b", []Point{{5, 7}, {50, 7}, {0, 9}}}
	if got := proportional.Power(); math.Abs(got-1) > 1e-9 {
		t.Errorf("what is proportional grows by n^%g", got)
	}
	if got := level.Power(); math.Abs(got) > 1e-9 {
		t.Errorf("what is level grows by n^%g", got)
	}
	if got := proportional.Slope(); math.Abs(got-3) > 1e-9 {
		t.Errorf("the slope is %g, want 3", got)
	}
}
