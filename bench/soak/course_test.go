package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLagsAreThoseOfTheInterval(t *testing.T) {
	writes := []write{{object: 1, rv: 10, at: second(1), answered: true},
		{object: 1, rv: 11, at: second(2), answered: true},
		{object: 1, rv: 12, at: second(3)}, {object: 1, rv: 13, at: second(11), answered: true}}
	late := func(rv uint64, at time.Time, by time.Duration) receivedEvent {
		return receivedEvent{kind: modified, object: 1, rv: rv, at: at.Add(by)}
	}
	seen := []receivedEvent{late(10, second(1), 5*time.Millisecond), late(11, second(2), 20*time.Second),
		late(12, second(3), time.Hour), late(13, second(11), -time.Millisecond)}
	c := &levelHistory{looks: []levelSample{{at: second(5)}, {at: second(10)}, {at: second(15)}}}
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

func TestSeriesHasALineForEachLook(t *testing.T) {
	c := &levelHistory{began: noon,
		looks: []levelSample{{at: second(5), rss: 90.5, goroutines: 100, fds: 20, streams: 7, p50: 1.5, p99: 2},
			{at: second(10), heap: 6}}}
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
	if lines := strings.Split(string(text), "\n"); len(lines) != 4 || lines[1] != "5,90.5,0,100,20,7,1.5,2,false" ||
		lines[2] != "10,0,6,0,0,0,0,0,true" {
		t.Errorf("%q", lines)
	}
}
