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
		text := Plot{Title: "title", X: "x", Y: "y", Log: log,
			Curves: []Curve{{"a", []Point{{1, 2}, {10, 20}}}, {"b", []Point{{1, 3}, {2, 0}}}}}.SVG()
		if got := strings.Count(text, "<circle"); got != points {
			t.Errorf("%d points were drawn, want %d", got, points)
		}
		mustBeXML(t, text)
	}
	f(true, 3) // what is 0 has no logarithm
	f(false, 4)
}

func mustBeXML(t *testing.T, text string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
	}
}

// All panels have the spans, the short ones too, and what lies beyond them is not drawn twice in
// the legend.
func TestStackMarksAllPanels(t *testing.T) {
	line := []Curve{{"a", []Point{{0, 1}, {60, 10000}}}}
	text := Stack{
		Title: "title", X: "x", Panels: []Panel{{Y: "linear", Curves: line}, {Y: "powers", Log: true, Curves: line}},
		Spans: []Span{{"killed", 10, 10.001}, {"frozen", 20, 30}, {"killed", 40, 40.1}},
	}.SVG()
	mustBeXML(t, text)
	killed, frozen := spanColours[1], spanColours[0] // in the order of their names
	if a, b := strings.Count(text, killed), strings.Count(text, frozen); a != 2*2+1 || b != 2+1 {
		t.Errorf("drawn %d and %d times in:\n%s", a, b, text)
	}
	if !strings.Contains(text, `width="1.5"`) {
		t.Errorf("a short span cannot be seen in:\n%s", text)
	}
}

func TestPanelHasFewTicks(t *testing.T) {
	for _, s := range []scale{newScale([]float64{10}, 0, 1), newScale([]float64{29.9}, 0, 1),
		newLogScale([]float64{0.3, 20000}, 0, 1)} {
		if got := (Panel{}).ticks(s); len(got) < 3 || len(got) > 6 {
			t.Errorf("ticks %v of %v", got, s.ticks())
		}
	}
}

func TestTrend(t *testing.T) {
	straight := Curve{"a", []Point{{1, 3}, {2, 6}, {3, 9}}}
	if slope, deviation := straight.Trend(); math.Abs(slope-3) > 1e-9 || deviation > 1e-6 {
		t.Errorf("a straight line has the trend %g ± %g", slope, deviation)
	}
	if _, deviation := (Curve{"b", []Point{{1, 3}, {2, 5}}}).Trend(); !math.IsInf(deviation, 1) {
		t.Errorf("two points have the trend ± %g", deviation)
	}
	// The textbook's: y - 2x = ±1 in turn, no residual predictable from the one before.
	var turns, waves Curve
	for i := range 100 {
		x := float64(i)
		turns.Points = append(turns.Points, Point{x, 2*x + float64(i%2*2-1)})
		waves.Points = append(waves.Points, Point{x, 2*x + float64(i/10%2*2-1)})
	}
	slope, deviation := turns.Trend()
	if want := math.Sqrt(100. / 98 / (100 * 9999 / 12)); math.Abs(slope-2) > 0.01 || math.Abs(deviation-want) > want/100 {
		t.Errorf("the trend is %g ± %g, want 2 ± %g", slope, deviation, want)
	}
	if _, wide := waves.Trend(); wide < 2*deviation {
		t.Errorf("what wanders in waves has the trend ± %g, what does not ± %g", wide, deviation)
	}
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
