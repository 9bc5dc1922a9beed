package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/bench/rig/plot"
)

func TestLagsAreThoseOfTheInterval(t *testing.T) {
	writes := []write{{object: 1, rv: 10, at: second(1), answered: true}, {object: 1, rv: 11, at: second(2), answered: true},
		{object: 1, rv: 12, at: second(3)}, {object: 1, rv: 13, at: second(11), answered: true}}
	late := func(rv uint64, at time.Time, by time.Duration) sighting {
		return sighting{kind: modified, object: 1, rv: rv, at: at.Add(by)}
	}
	seen := []sighting{late(10, second(1), 5*time.Millisecond), late(11, second(2), 20*time.Second), late(12, second(3), time.Hour), late(13, second(11), -time.Millisecond)}
	c := &course{looks: []look{{at: second(5)}, {at: second(10)}, {at: second(15)}}}
	c.addLags(deliveries(writes, seen))
	if one := c.looks[0]; one.p50 != 20000 || one.p99 != 20000 {
		t.Errorf("the first look: %+v: one of the two was late, however late it came", one)
	}
	if one := c.looks[1]; one.p99 != 0 {
		t.Errorf("nothing was written before the second look: %+v", one)
	}
	if one := c.looks[2]; one.p99 != 0 {
		t.Errorf("an event that comes before the acknowledgement is not late: %+v", one)
	}
}

// A leak of what is just not allowed any more is found within an hour, beneath the noise of those who come and go; noise is no leak.
func TestSlopes(t *testing.T) {
	f := func(l level, perHour, noise float64, want bool) {
		t.Helper()
		random := rand.New(rand.NewPCG(1, 1))
		var curve plot.Curve
		for i := range 600 {
			minutes := float64(i) / 10
			curve.Points = append(curve.Points, plot.Point{X: minutes, Y: 200 + perHour*minutes/60 + noise*random.NormFloat64()})
		}
		trend := newTrend(l, curve)
		if trend.flat() != want {
			t.Errorf("%s, %g per hour under noise of %g: %s", l.name, perHour, noise, trend)
		}
	}
	memory, files := levels[0], levels[3]
	f(files, 0, 10, true)
	f(files, 12, 10, false)
	f(files, -12, 10, false) // those who stay are fewer
	f(memory, 0, 5, true)
	f(memory, 20, 5, false)
	f(memory, -20, 5, true)
}

func TestSeriesHasALineForEachLook(t *testing.T) {
	c := &course{began: noon, looks: []look{{at: second(5), rss: 90.5, goroutines: 100, fds: 20, streams: 7, p50: 1.5, p99: 2}, {at: second(10), heap: 6}}}
	o := &outages{}
	o.mu.all = []outage{{killed, second(9), second(12)}}
	file := filepath.Join(t.TempDir(), "soak.csv")
	if err := c.write(file, o); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(string(text), "\n"); len(lines) != 4 || lines[1] != "5,90.5,0,100,20,7,1.5,2,false" || lines[2] != "10,0,6,0,0,0,0,0,true" {
		t.Errorf("%q", lines)
	}
}
