package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func TestScale(t *testing.T) {
	s := newScale([]float64{20, 5000}, 0, 100)
	if got := s.at(10); math.Abs(got) > 1e-9 {
		t.Errorf("10 is at %g, want 0", got)
	}
	if got := s.at(10000); math.Abs(got-100) > 1e-9 {
		t.Errorf("10000 is at %g, want 100", got)
	}
	if got, want := s.at(100)-s.at(10), s.at(10000)-s.at(1000); math.Abs(got-want) > 1e-9 {
		t.Errorf("a power of ten is %g here and %g there", got, want)
	}
	if one := newScale([]float64{10}, 0, 1); math.IsNaN(one.at(10)) || math.IsInf(one.at(10), 0) {
		t.Errorf("a single value is at %g", one.at(10))
	}
}

func TestDrawingIsXMLWithEachPoint(t *testing.T) {
	c := chart{title: "title", x: "x", y: "y", curves: []curve{{"a", []point{{1, 2}, {10, 20}}}, {"b", []point{{1, 3}, {2, 0}}}}}
	text := c.svg()
	if got := strings.Count(text, "<circle"); got != 3 {
		t.Errorf("%d points were drawn, want 3: what is 0 has no place", got)
	}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
	}
}
