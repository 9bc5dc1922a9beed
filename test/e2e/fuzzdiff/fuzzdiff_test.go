package fuzzdiff

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
	"spillway/test/framework/relay"
)

var (
	requests = flag.Uint64("requests", 2000, "how many requests to make")
	minutes  = flag.Float64("minutes", 0.5, "end after so many minutes, however many requests were made")
	seed     = flag.Uint64("seed", 1, "what the requests are made from")
	share    = flag.Float64("share", 60, "how much must be answered from memory, in percent")
)

// late is how late the API server answers the proxies' own questions.
var late relay.Answers

func init() {
	flag.Var(&late, "late", "how late the API server answers the proxies' own questions: a time, random or never")
}

func TestMain(m *testing.M) {
	flag.Parse()
	// Requests wait, above all, so the number of tests at a time is not a matter of processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err) // the flag exists
	}
	os.Exit(m.Run())
}

// perRound is how many requests are sent before objects change again.
const perRound = 500

// Random requests to Spillway are answered as by the API server; with planted faults they are not.
func TestRandomRequestsAreAnsweredAlike(t *testing.T) {
	w := newWorld(t, process.BuildProxy(t), controlplane.Options{}, nil)
	state := w.testSpillway(t)
	if t.Failed() || testing.Short() {
		return // what is found next need not be what was planted
	}
	t.Run("planted", func(t *testing.T) { w.testPlanted(t, state) })
}

// testSpillway expects no difference, and returns the state of the last round.
func (w *world) testSpillway(t *testing.T) (state *State) {
	f := &Fuzzer{Ways: w.ways, Workers: 48, Seed: *seed, Tally: exchange.NewTally(), Skew: w.skew}
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*minutes*float64(time.Minute)))
	defer cancel()
	for round := 0; uint64(round)*perRound < *requests && ctx.Err() == nil && !t.Failed(); round++ {
		state = w.round(t, round)
		first := uint64(round) * perRound
		for _, finding := range f.Round(ctx, state, first, min(first+perRound, *requests)) {
			t.Errorf("round %d: %s", round, finding)
		}
	}
	t.Logf("seed %d, %s: %s", *seed, time.Since(start).Round(time.Second), f)
	t.Log(f.Tally.Text())
	if f.Share() < *share && w.skew == nil {
		t.Errorf("%.1f %% were answered from memory, want %.0f %%", f.Share(), *share)
	}
	return state
}
