// Package plot draws curves as SVG, and says how they grow.
package plot

import (
	"fmt"
	"os"
	"strings"
)

// Plot is a drawing of curves. On logarithmic scales what grows in proportion is a straight line.
type Plot struct {
	Title, X, Y string
	Log         bool // both scales are logarithmic; otherwise they begin at 0
	Curves      []Curve
}

// Curve is a line through points.
type Curve struct {
	Name   string
	Points []Point
}

// Point is one of a curve.
type Point struct{ X, Y float64 }

// Of the drawing, in its own units.
const (
	width, height             = 720, 420
	left, right, top, bottom  = 70, 190, 40, 50
	plotWidth, plotHeight     = width - left - right, height - top - bottom
	background, ink, gridline = "#ffffff", "#333333", "#dddddd"
)

var colours = []string{"#c0392b", "#2471a3", "#1e8449", "#7d3c98"}

// SVG draws it.
func (p Plot) SVG() string {
	x, y := p.scales()
	var d drawing
	d.begin(height)
	d.text(left, top-18, "start", ink, ` font-size="15"`, p.Title)
	for _, v := range x.ticks() {
		d.line(x.at(v), top, x.at(v), top+plotHeight)
		d.text(x.at(v), top+plotHeight+16, "middle", ink, "", label(v))
	}
	for _, v := range y.ticks() {
		d.line(left, y.at(v), left+plotWidth, y.at(v))
		d.text(left-6, y.at(v)+4, "end", ink, "", label(v))
	}
	d.text(left+plotWidth/2, height-12, "middle", ink, "", p.X)
	d.text(16, top+plotHeight/2, "middle", ink, fmt.Sprintf(` transform="rotate(-90 16 %d)"`, top+plotHeight/2), p.Y)
	for i, c := range p.Curves {
		colour := colours[i%len(colours)]
		d.curve(p.drawable(c.Points), x, y, colour)
		d.text(left+plotWidth+12, float64(top+14+20*i), "start", colour, "", c.Name)
	}
	d.WriteString("</svg>\n")
	return d.String()
}

// Write draws it into a file.
func (p Plot) Write(file string) error { return os.WriteFile(file, []byte(p.SVG()), 0o644) }

// scales are those that all points fit on.
func (p Plot) scales() (x, y scale) {
	var xs, ys []float64
	for _, c := range p.Curves {
		for _, point := range p.drawable(c.Points) {
			xs, ys = append(xs, point.X), append(ys, point.Y)
		}
	}
	fit := newScale
	if p.Log {
		fit = newLogScale
	}
	return fit(xs, left, left+plotWidth), fit(ys, top+plotHeight, top)
}

// drawable are the points that have a place.
func (p Plot) drawable(points []Point) []Point {
	if p.Log {
		return positive(points)
	}
	return points
}

// drawing is one as it is written.
type drawing struct{ strings.Builder }

// begin begins a drawing so high.
func (d *drawing) begin(high int) {
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+
		"\n", width, high)
	d.box(0, 0, width, float64(high), background)
}

func (d *drawing) box(x, y, wide, high float64, colour string) {
	fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, wide, high, colour)
}

func (d *drawing) text(x, y float64, anchor, fill, more, words string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s"%s>%s</text>`+"\n", x, y, anchor, fill, more, words)
}

func (d *drawing) line(x1, y1, x2, y2 float64) {
	fmt.Fprintf(d, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, gridline)
}

// curve draws the line, and the points if they are few.
func (d *drawing) curve(points []Point, x, y scale, colour string) {
	const few = 30
	var path []string
	for _, p := range points {
		path = append(path, fmt.Sprintf("%.1f,%.1f", x.at(p.X), y.at(p.Y)))
		if len(points) <= few {
			fmt.Fprintf(d, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x.at(p.X), y.at(p.Y), colour)
		}
	}
	fmt.Fprintf(d, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "),
		colour)
}
