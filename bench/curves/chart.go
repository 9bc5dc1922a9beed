package main

import (
	"fmt"
	"math"
	"strings"
)

// chart is a drawing of curves on two logarithmic scales, where what grows in proportion is a straight line.
type chart struct {
	name, title, x, y string
	curves            []curve
}

type curve struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// Of the drawing, in its own units.
const (
	width, height             = 720, 420
	left, right, top, bottom  = 70, 190, 40, 50
	plotWidth, plotHeight     = width - left - right, height - top - bottom
	background, ink, gridline = "#ffffff", "#333333", "#dddddd"
)

var colours = []string{"#c0392b", "#2471a3", "#1e8449", "#7d3c98"}

// scale maps values to places, by powers of ten.
type scale struct {
	low, high float64 // exponents
	from, to  float64
}

func newScale(values []float64, from, to float64) scale {
	s := scale{low: math.Inf(1), high: math.Inf(-1), from: from, to: to}
	for _, v := range values {
		s.low, s.high = min(s.low, math.Log10(v)), max(s.high, math.Log10(v))
	}
	s.low, s.high = math.Floor(s.low*2)/2, math.Ceil(s.high*2)/2
	if s.low == s.high {
		s.high += 0.5
	}
	return s
}

func (s scale) at(v float64) float64 {
	return s.from + (math.Log10(v)-s.low)/(s.high-s.low)*(s.to-s.from)
}

// ticks are 1, 2 and 5 of each power of ten.
func (s scale) ticks() []float64 {
	var ticks []float64
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

// svg draws it.
func (c chart) svg() string {
	var xs, ys []float64
	for _, curve := range c.curves {
		for _, p := range curve.points {
			if p.x > 0 && p.y > 0 {
				xs, ys = append(xs, p.x), append(ys, p.y)
			}
		}
	}
	x, y := newScale(xs, left, left+plotWidth), newScale(ys, top+plotHeight, top)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="%s"/>`+"\n", width, height, background)
	text := func(x, y float64, anchor, fill, more, words string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s"%s>%s</text>`+"\n", x, y, anchor, fill, more, words)
	}
	line := func(x1, y1, x2, y2 float64) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, gridline)
	}
	text(left, top-18, "start", ink, ` font-size="15"`, c.title)
	for _, v := range x.ticks() {
		line(x.at(v), top, x.at(v), top+plotHeight)
		text(x.at(v), top+plotHeight+16, "middle", ink, "", fmt.Sprintf("%g", v))
	}
	for _, v := range y.ticks() {
		line(left, y.at(v), left+plotWidth, y.at(v))
		text(left-6, y.at(v)+4, "end", ink, "", fmt.Sprintf("%.4g", v))
	}
	text(left+plotWidth/2, height-12, "middle", ink, "", c.x)
	text(16, top+plotHeight/2, "middle", ink, fmt.Sprintf(` transform="rotate(-90 16 %d)"`, top+plotHeight/2), c.y)
	for i, curve := range c.curves {
		colour := colours[i%len(colours)]
		var path []string
		for _, p := range curve.points {
			if p.x > 0 && p.y > 0 {
				path = append(path, fmt.Sprintf("%.1f,%.1f", x.at(p.x), y.at(p.y)))
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x.at(p.x), y.at(p.y), colour)
			}
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), colour)
		text(left+plotWidth+12, float64(top+14+20*i), "start", colour, "", curve.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
