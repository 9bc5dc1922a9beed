package cache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"spillway/internal/object"
)

// randomList is a list at l, made from the state by changes that the API server may have made since
// p.
func randomList(t testing.TB, rng *rand.Rand, now state, p, l uint64) []*object.Object {
	t.Helper()
	free := rng.Perm(int(l - p))
	take := func() uint64 { rv := p + 1 + uint64(free[0]); free = free[1:]; return rv }
	var words []string
	for i := range 12 {
		name := fmt.Sprintf("o%02d", i)
		had, ok := now["n/"+name]
		switch n := rng.IntN(6); {
		case n == 0 || len(free) == 0 && !ok: // deleted, or never there
		case n <= 2 && ok || ok && len(free) == 0:
			words = append(words, name+"="+had)
		case n <= 4 && ok:
			words = append(words, fmt.Sprintf("%s=%s@%d", name, had[:slices.Index([]byte(had), '@')], take()))
		case n == 5 || !ok && n == 3:
			rv := take()
			words = append(words, fmt.Sprintf("%s=u%d@%d", name, rv, rv))
		}
	}
	return objects(t, words...)
}

// Whatever the API server did in a gap: a client that resumes from a promise ends with the API
// server's state, and one that resumes strictly inside is refused.
func TestEveryResumeAcrossASeamEndsWithTheUpstreamState(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newPods(unlimited)
		_ = r.Replace(randomList(t, rng, state{}, 10, 20), 20)
		promised := map[uint64]state{20: stateOf(r.Snapshot())}
		gaps := [][2]uint64{}
		for range 4 {
			for range rng.IntN(4) {
				randomChange(t, rng, r)
				promised[r.CompleteRV()] = stateOf(r.Snapshot())
			}
			p := r.CompleteRV()
			l := p + 1 + uint64(rng.IntN(12))
			list := randomList(t, rng, stateOf(r.Snapshot()), p, l)
			_ = r.Replace(list, l)
			promised[l], gaps = stateOf(r.Snapshot()), append(gaps, [2]uint64{p, l})
			if len(promised[l]) != len(list) || r.Generation() != 0 {
				t.Fatalf("seed %d: %d objects of %d, generation %d", seed, len(promised[l]), len(list), r.Generation())
			}
		}
		for rv, had := range promised {
			checkResume(t, r, rv, had, promised)
		}
		for _, gap := range gaps {
			for rv := gap[0] + 1; rv < gap[1]; rv++ {
				checkFind(t, r.Log(), rv, -int64(gap[1]))
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d\n%s", seed, logFrom(t, r.Log(), 2))
		}
	}
}

// randomChange applies one change or progress, as a watch would.
func randomChange(t testing.TB, rng *rand.Rand, r *Resource) {
	t.Helper()
	rv := r.CompleteRV() + 1 + uint64(rng.IntN(3))
	name := fmt.Sprintf("o%02d", rng.IntN(12))
	old, ok := r.Snapshot().Get("n/" + name)
	switch {
	case rng.IntN(6) == 0:
		r.Progress(rv, r.Generation())
	case !ok:
		_ = r.Add(pod(t, name, rv, fmt.Sprintf("u%d", rv)))
	case rng.IntN(3) == 0:
		_ = r.Delete(pod(t, name, rv, string(old.UID)))
	default:
		_ = r.Update(pod(t, name, rv, string(old.UID)))
	}
}

// checkResume follows the log as a client that had the state at rv, and compares whenever it is
// complete through a resourceVersion whose state is known.
func checkResume(t *testing.T, r *Resource, rv uint64, had state, promised map[uint64]state) {
	t.Helper()
	client := state{}
	for k, v := range had {
		client[k] = v
	}
	pos, err := r.Log().Find(rv)
	if err != nil {
		t.Errorf("resume at %d: %v", rv, err)
		return
	}
	last := uint64(0)
	for ; pos < r.Log().Head(); pos++ {
		e, _ := r.Log().EntryAt(pos)
		if e.RV < last || e.RV < rv || e.CompleteRV < rv {
			t.Errorf("resume at %d: %s, complete through %d, after %d", rv, describe(e), e.CompleteRV, last)
		}
		last = e.RV
		client.apply(&e.Event)
		if want, ok := promised[e.CompleteRV]; ok && !e.Seam.IsOpen() && want.String() != client.String() {
			t.Errorf("resume at %d: at %d the client has %s\nwant %s", rv, e.CompleteRV, client, want)
			return
		}
	}
	if want := stateOf(r.Snapshot()); want.String() != client.String() {
		t.Errorf("resume at %d: in the end the client has %s\nwant %s", rv, client, want)
	}
}

// Exact states: every one of a history is what it was, and those that never were are refused.
func TestEveryExactStateOfAHistoryIsWhatItWas(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		limits := unlimited
		if seed%2 == 1 {
			limits = HistoryLimits{HistoryBytes: 6000}
		}
		r := newPods(limits)
		_ = r.Replace(randomList(t, rng, state{}, 10, 30), 30)
		model := map[uint64]state{30: stateOf(r.Snapshot())}
		for range 60 {
			from := r.CompleteRV()
			if rng.IntN(15) == 0 {
				l := from + 1 + uint64(rng.IntN(10))
				_ = r.Replace(randomList(t, rng, stateOf(r.Snapshot()), from, l), l)
			} else {
				randomChange(t, rng, r)
				for rv := from + 1; rv < r.CompleteRV(); rv++ { // nothing happened between
					model[rv] = model[from]
				}
			}
			model[r.CompleteRV()] = stateOf(r.Snapshot())
			checkAt(t, r, model, 1+uint64(rng.IntN(int(r.CompleteRV()))))
		}
		for rv := uint64(1); rv <= r.CompleteRV(); rv++ {
			checkAt(t, r, model, rv)
		}
		if _, err := r.SnapshotAt(r.CompleteRV() + 1); !errors.Is(err, ErrNotReached) {
			t.Errorf("the future: %v", err)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func checkAt(t *testing.T, r *Resource, model map[uint64]state, rv uint64) {
	t.Helper()
	s, err := r.SnapshotAt(rv)
	want, known := model[rv]
	var expired *ExpiredError
	switch {
	case err == nil && !known:
		t.Errorf("the state at %d, which was never seen, is %s", rv, stateOf(s))
	case err == nil && (stateOf(s).String() != want.String() || s.RV != rv):
		t.Errorf("the state at %d is %s (%d)\nwant %s", rv, stateOf(s), s.RV, want)
	case err != nil && !errors.As(err, &expired):
		t.Errorf("the state at %d: %v", rv, err)
	case err != nil && known && rv >= r.Log().Floor():
		t.Errorf("the state at %d is refused above the floor %d: %v", rv, r.Log().Floor(), err)
	}
}
