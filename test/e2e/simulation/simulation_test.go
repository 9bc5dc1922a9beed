package simulation

import (
	"flag"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	seeds = flag.Int("seeds", 20, "how many random runs to make")
	steps = flag.Int("steps", 500, "how many steps each run has")
	first = flag.Uint64("seed", 1, "the seed of the first run; the others follow")
)

// run makes one run of a seed.
func run(t *testing.T, seed uint64, steps int, adapt func(*config)) (v *Violation, c counts) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		conf := randomConfig(r)
		if adapt != nil {
			adapt(&conf)
		}
		s := newSimulation(r, conf)
		v, c = s.Run(steps), s.counts
	})
	return v, c
}

func TestSimulation(t *testing.T) {
	var all counts
	for i := range *seeds {
		seed := *first + uint64(i)
		v, c := run(t, seed, *steps, nil)
		all.add(c)
		if v != nil {
			t.Errorf("seed %d: check %q: %s\nrepeat with: "+
				"go test ./e2e/simulation -run TestSimulation -seed=%d -seeds=1 -steps=%d",
				seed, v.Check, v.Text, seed, *steps)
		}
	}
	t.Logf("%d seeds of %d steps: %+v", *seeds, *steps, all)
	for what, n := range map[string]int{
		"seams": all.Seams, "voids": all.Voids, "expired": all.Expired, "unproven": all.Unproven,
		"deadlines": all.Deadlines, "cuts": all.Cuts, "bookmarks": all.Bookmarks, "exact reads": all.Exact,
	} {
		if n == 0 && *seeds**steps >= 10000 {
			t.Errorf("the runs had no %s: they test less than they say", what)
		}
	}
}
