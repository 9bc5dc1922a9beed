package flowcontrol

import (
	"testing"
	"time"
)

// press refuses n a second for so many seconds, from now on, and returns when it ended and the
// longest Retry-After of the last one.
func press(p *pressure, now time.Time, seconds, n int) (time.Time, time.Duration) {
	longest := time.Duration(0)
	for s := range seconds {
		for i := range n {
			if told := p.refuse(now.Add(time.Second * time.Duration(i) / time.Duration(n))); s == seconds-1 {
				longest = max(longest, told)
			}
		}
		now = now.Add(time.Second)
	}
	return now, longest
}

// The more requests are refused, the longer is Retry-After, up to a bound; and it falls again.
func TestPressure(t *testing.T) {
	var p pressure
	now := time.Unix(1e9, 0)
	now, calm := press(&p, now, 10, 1)
	if calm > 2*time.Second {
		t.Errorf("one refusal a second: %s, want 2 s at most", calm)
	}
	now, hard := press(&p, now, 60, 200)
	if hard != retryAfterMax {
		t.Errorf("200 refusals a second for a minute: up to %s, want %s", hard, retryAfterMax)
	}
	if after := p.refuse(now.Add(time.Hour)); after > 2*time.Second {
		t.Errorf("an hour later: %s, want 2 s at most", after)
	}
}

// Requests that are refused at the same time get different times, and each time often.
func TestPressureSpreads(t *testing.T) {
	var p pressure
	now, _ := press(&p, time.Unix(1e9, 0), 60, 200)
	told := map[time.Duration]int{}
	for range 3200 {
		told[p.refuse(now)]++
	}
	for s := time.Second; s <= retryAfterMax; s += time.Second {
		if n := told[s]; n < 25 || n > 400 { // 100 each; that one is outside has a chance below 1e-12
			t.Errorf("%s was reported %d times of 3200", s, n)
		}
	}
	if len(told) != int(retryAfterMax/time.Second) {
		t.Errorf("told %d different times", len(told))
	}
}
