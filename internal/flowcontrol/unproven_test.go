package flowcontrol

import (
	"fmt"
	"testing"
)

// Unproven senders have a part of the seats together, one of them half of it, and proven ones have
// what is left.
func TestUnprovenSendersHaveAPartOfTheSeats(t *testing.T) {
	l := NewLimiter(Limits{PassThrough: 32, PassThroughPerUser: 28}, Queue{}, nil)
	take := func(name string, proven bool, want int) (passes []Permit) {
		t.Helper()
		for {
			pass, refusal := l.AdmitPassThrough(nil, UserFlow(name), proven)
			if refusal != nil {
				break
			}
			passes = append(passes, pass)
		}
		if len(passes) != want {
			t.Errorf("%s has %d seats, want %d", name, len(passes), want)
		}
		return passes
	}
	first := take("an unproven sender", false, 2)
	second := take("another unproven sender", false, 2)
	take("a third unproven sender", false, 0)
	known := take("a user", true, 28)
	for _, pass := range append(first, second...) {
		pass.Release()
		pass.Release() // does nothing
	}
	if held := l.GateStats(LimitPassThrough).Held; held != 28 {
		t.Errorf("%d seats are held, want 28", held)
	}
	take("a third unproven sender", false, 2)
	for _, pass := range known {
		pass.Release()
	}
}

// A refusal of the whole gives the part back.
func TestUnprovenPartIsGivenBack(t *testing.T) {
	l := NewLimiter(Limits{PassThrough: 8}, Queue{}, nil)
	for i := range 8 {
		if _, refusal := l.AdmitPassThrough(nil, UserFlow(fmt.Sprint(i)), true); refusal != nil {
			t.Fatal(refusal)
		}
	}
	if _, refusal := l.AdmitPassThrough(nil, UserFlow("unproven"), false); refusal == nil {
		t.Error("there is a ninth seat")
	}
	if held := l.unprovenPassThrough.gate.Stats().Held; held != 0 {
		t.Errorf("%d of the part are held", held)
	}
}

func TestUnprovenSendersHaveAPartOfBodyBytes(t *testing.T) {
	for most, part := range map[int64]int64{0: unprovenBodyBytesLimit, 8000: 1000, 1 << 40: unprovenBodyBytesLimit} {
		l := NewLimiter(Limits{BodyBytes: most}, Queue{}, nil)
		release := l.ReserveBody(part, false)
		if release == nil {
			t.Fatalf("of %d bytes, %d are not for unproven senders", most, part)
		}
		if l.ReserveBody(1, false) != nil {
			t.Errorf("of %d bytes, more than %d are for unproven senders", most, part)
		}
		if l.ReserveBody(part, true) == nil {
			t.Errorf("of %d bytes, none are left for others", most)
		}
		release()
		if l.ReserveBody(part, false) == nil {
			t.Errorf("of %d bytes, what was released is lost", most)
		}
	}
}
