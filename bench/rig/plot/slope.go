package plot

import "math"

// Power is the power of x with which y grows: the slope on logarithmic scales.
func (c Curve) Power() float64 {
	var logs []Point
	for _, p := range positive(c.Points) {
		logs = append(logs, Point{math.Log(p.X), math.Log(p.Y)})
	}
	return Curve{Points: logs}.Slope()
}

// Slope is that of the straight line which fits the points best.
func (c Curve) Slope() float64 {
	var n, sx, sy, sxx, sxy float64
	for _, p := range c.Points {
		n, sx, sy, sxx, sxy = n+1, sx+p.X, sy+p.Y, sxx+p.X*p.X, sxy+p.X*p.Y
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}

// Trend is the slope, and the standard error of it. Levels wander: what lies above the line is
// followed by more that does, so that many looks are worth less than as many independent ones would
// be. They count for fewer, by how much each resembles the one before it.
func (c Curve) Trend() (slope, deviation float64) {
	slope = c.Slope()
	n := float64(len(c.Points))
	var x, y float64
	for _, p := range c.Points {
		x, y = x+p.X/n, y+p.Y/n
	}
	var squares, products, spread, before float64
	for _, p := range c.Points {
		rest := p.Y - y - slope*(p.X-x)
		squares, products, spread = squares+rest*rest, products+rest*before, spread+(p.X-x)*(p.X-x)
		before = rest
	}
	if n <= 2 {
		return slope, math.Inf(1)
	}
	if squares == 0 {
		return slope, 0
	}
	alike := min(max(0, products/squares), 0.99)
	return slope, math.Sqrt(squares / (n - 2) / spread * (1 + alike) / (1 - alike))
}

// Mean is that of y.
func (c Curve) Mean() float64 {
	sum := 0.0
	for _, p := range c.Points {
		sum += p.Y
	}
	return sum / float64(len(c.Points))
}

// positive are the points that have logarithms.
func positive(points []Point) []Point {
	var kept []Point
	for _, p := range points {
		if p.X > 0 && p.Y > 0 {
			kept = append(kept, p)
		}
	}
	return kept
}
