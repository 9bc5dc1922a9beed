package chaos

import (
	"testing"
)

// A seed says all, single faults have their turns, and what comes together can.
func TestSchedule(t *testing.T) {
	single, together := map[string]bool{}, map[string]bool{}
	for seed := range uint64(400) {
		s := newSchedule(seed)
		if again := newSchedule(seed); again.String() != s.String() {
			t.Fatalf("seed %d is %s, and then %s", seed, s, again)
		}
		touched := map[string]bool{}
		for _, step := range s {
			if seed%2 == 0 {
				single[step.name] = true
			} else {
				together[step.name] = true
			}
			for _, what := range step.touches {
				if touched[what] {
					t.Errorf("seed %d touches the %s twice: %s", seed, what, s)
				}
				touched[what] = true
			}
		}
	}
	for _, f := range faults() {
		if !single[f.name] || !together[f.name] {
			t.Errorf("%s: alone %t, with others %t", f.name, single[f.name], together[f.name])
		}
	}
}
