package states

import (
	"testing"
	"time"
)

func TestPaceGrowsUpToItsLongestAndBeginsAnewAfterQuiet(t *testing.T) {
	p := Pace{First: time.Second, Longest: 8 * time.Second}
	now := time.Now()
	begin := now
	var at []time.Duration
	for len(at) < 7 {
		if p.Try(now) {
			at = append(at, now.Sub(begin))
		}
		now = now.Add(500 * time.Millisecond)
	}
	for i, want := range []time.Duration{0, 1, 3, 7, 15, 23, 31} {
		if at[i] != want*time.Second {
			t.Errorf("question %d after %v, want %vs", i, at[i], want)
		}
	}
	now = now.Add(17 * time.Second)
	if !p.Try(now) || p.Try(now.Add(999*time.Millisecond)) || !p.Try(now.Add(time.Second)) {
		t.Error("after quiet it does not begin again")
	}
}

func TestPaceSpreadsAttemptsByAFifth(t *testing.T) {
	now := time.Now()
	for range 1000 {
		p := Pace{First: 10 * time.Second, Longest: 20 * time.Second}
		if d := p.Next(now).Sub(now); d < 8*time.Second || d > 12*time.Second {
			t.Fatalf("first pause %v", d)
		}
		if d := p.Next(now).Sub(now); d < 16*time.Second || d > 24*time.Second {
			t.Fatalf("second pause %v", d)
		}
	}
}
