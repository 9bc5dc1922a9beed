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
