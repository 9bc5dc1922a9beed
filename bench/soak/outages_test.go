package main

import (
	"slices"
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	f := func(duration time.Duration, killedAt, frozenAt []time.Duration, takes time.Duration) {
		t.Helper()
		var gotKilled, gotFrozen []time.Duration
		for _, p := range planFor(duration) {
			if p.what == killed {
				gotKilled = append(gotKilled, p.after)
				continue
			}
			if gotFrozen = append(gotFrozen, p.after); p.takes != takes {
				t.Errorf("%s: frozen for %s, want %s", duration, p.takes, takes)
			}
		}
		if !slices.Equal(gotKilled, killedAt) || !slices.Equal(gotFrozen, frozenAt) {
			t.Errorf("%s: killed at %v, frozen at %v", duration, gotKilled, gotFrozen)
		}
	}
	minutes := func(all ...float64) (out []time.Duration) {
		for _, n := range all {
			out = append(out, time.Duration(n*float64(time.Minute)))
		}
		return out
	}
	f(time.Hour, minutes(10, 20, 30, 40, 50), minutes(15, 35), 20*time.Second)
	f(6*time.Minute, minutes(2, 4), minutes(3), 20*time.Second)
	f(time.Minute, minutes(1./3, 2./3), minutes(.5), 5*time.Second)
}

func TestOutagesExcuse(t *testing.T) {
	o := &outages{settle: 10 * time.Second}
	o.mu.all = []outage{{killed, second(100), second(105)}, {frozen, second(200), time.Time{}}}
	f := func(from, to int, excused, covered bool) {
		t.Helper()
		if got := o.excuse(second(from), second(to)); got != excused {
			t.Errorf("from %d to %d is excused: %v", from, to, got)
		}
		if got := o.covers(second(from), second(to)); got != covered {
			t.Errorf("from %d to %d is covered: %v", from, to, got)
		}
	}
	f(80, 99, false, false)
	f(80, 101, true, false)
	f(101, 104, true, true)
	f(101, 114, true, true)
	f(101, 116, true, false)
	f(114, 130, true, false)
	f(116, 130, false, false)
	f(90, 130, true, false)
	f(201, 900, true, true) // it is not over
}
