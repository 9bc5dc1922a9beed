package plot

import (
	"fmt"
	"math"
	"os"
	"slices"
)

// Stack is several drawings one above the other, whose x is the same and begins at 0, with spans
// that are marked in all of them.
type Stack struct {
	Title, X string
	Spans    []Span
	Panels   []Panel
}

// Panel is one of the drawings. A logarithmic y leaves out what is not above 0.
type Panel struct {
	Y      string
	Log    bool
	Curves []Curve
}

// Span is something that went on from one x to another. Those of one name have one colour.
type Span struct {
	Name     string
	From, To float64
}

const (
	panelHeight = 130
	panelGap    = 22
)

var spanColours = []string{"#f0b27a", "#aed6f1", "#d7bde2"}

// SVG draws it.
func (s Stack) SVG() string {
	x := s.scale()
	foot := top + len(s.Panels)*(panelHeight+panelGap) - panelGap
	var d drawing
	d.begin(foot + bottom)
	d.text(left, top-18, "start", ink, ` font-size="15"`, s.Title)
	for _, v := range x.ticks() {
		d.text(x.at(v), float64(foot+16), "middle", ink, "", label(v))
	}
	d.text(left+plotWidth/2, float64(foot+bottom-12), "middle", ink, "", s.X)
	for i, p := range s.Panels {
		s.draw(&d, p, x, float64(top+i*(panelHeight+panelGap)))
	}
	s.legend(&d, float64(foot))
	d.WriteString("</svg>\n")
	return d.String()
}

// Write draws it into a file.
func (s Stack) Write(file string) error { return os.WriteFile(file, []byte(s.SVG()), 0o644) }

// scale is the x of all.
func (s Stack) scale() scale {
	var xs []float64
	for _, p := range s.Panels {
		for _, c := range p.Curves {
			for _, point := range c.Points {
				xs = append(xs, point.X)
			}
		}
	}
	return newScale(xs, left, left+plotWidth)
}

// draw draws one panel, below head.
func (s Stack) draw(d *drawing, p Panel, x scale, head float64) {
	y := p.scale(head)
	const thin = 1.5 // what is shorter is seen all the same
	for _, span := range s.Spans {
		from, to := x.at(span.From), x.at(span.To)
		d.box(from, head, max(to-from, thin), panelHeight, s.colour(span.Name))
	}
	for _, v := range x.ticks() {
		d.line(x.at(v), head, x.at(v), head+panelHeight)
	}
	for _, v := range p.ticks(y) {
		d.line(left, y.at(v), left+plotWidth, y.at(v))
		d.text(left-6, y.at(v)+4, "end", ink, "", label(v))
	}
	middle := head + panelHeight/2
	d.text(16, middle, "middle", ink, fmt.Sprintf(` transform="rotate(-90 16 %.1f)"`, middle), p.Y)
	for i, c := range p.Curves {
		colour := colours[i%len(colours)]
		d.curve(p.drawable(c.Points), x, y, colour)
		d.text(left+plotWidth+12, head+14+20*float64(i), "start", colour, "", c.Name)
	}
}

// legend says what the colours of the spans mean, right of the scale of x.
func (s Stack) legend(d *drawing, foot float64) {
	for i, name := range s.names() {
		at := foot - 6 - 20*float64(i)
		d.box(left+plotWidth+12, at-10, 12, 12, s.colour(name))
		d.text(left+plotWidth+30, at, "start", ink, "", name)
	}
}

// names are those of the spans, each once.
func (s Stack) names() []string {
	var names []string
	for _, span := range s.Spans {
		if !slices.Contains(names, span.Name) {
			names = append(names, span.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (s Stack) colour(name string) string {
	return spanColours[slices.Index(s.names(), name)%len(spanColours)]
}

// scale is the y of a panel.
func (p Panel) scale(head float64) scale {
	var ys []float64
	for _, c := range p.Curves {
		for _, point := range p.drawable(c.Points) {
			ys = append(ys, point.Y)
		}
	}
	fit := newScale
	if p.Log && len(ys) > 0 {
		fit = newLogScale
	}
	return fit(ys, head+panelHeight, head)
}

func (p Panel) drawable(points []Point) []Point {
	if p.Log {
		return positive(points)
	}
	return points
}

// ticks are no more of a scale's than a panel is high enough for.
func (p Panel) ticks(y scale) []float64 {
	const most = 6
	ticks := y.ticks()
	if y.log && len(ticks) > most {
		return slices.DeleteFunc(ticks, func(v float64) bool {
			power := math.Log10(v)
			return math.Abs(power-math.Round(power)) > 1e-9
		})
	}
	for len(ticks) > most {
		var kept []float64
		for i := 0; i < len(ticks); i += 2 {
			kept = append(kept, ticks[i])
		}
		ticks = kept
	}
	return ticks
}
