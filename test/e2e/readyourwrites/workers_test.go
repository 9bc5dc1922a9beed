package readyourwrites

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// workers are the workers of a test. They may play several times: what they wrote stays, and they
// know it.
type players struct {
	workers []*worker
	enough  func(*tally) bool // ends a play early
}

// newPlayers write to the first address and read from the second. Their reads may fail until they
// are strict.
func newPlayers(t *testing.T, direct, through *rest.Config) *players {
	t.Helper()
	proxied, err := newClient(through)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxied.http.CloseIdleConnections)
	p := &players{enough: func(*tally) bool { return false }}
	for i := range workers {
		p.workers = append(p.workers, &worker{
			namespace: namespaceOf(i), proxy: proxied, random: rand.New(rand.NewPCG(1, uint64(i))), truth: versions{},
			lenient: true,
		})
	}
	p.writeTo(t, direct)
	return p
}

// writeTo makes them write to an address from now on.
func (p *players) writeTo(t *testing.T, config *rest.Config) {
	t.Helper()
	direct, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(direct.http.CloseIdleConnections)
	for _, w := range p.workers {
		w.direct = direct
	}
}

// strict makes a read that fails a failure of the test.
func (p *players) strict(t *testing.T) {
	t.Helper()
	for _, w := range p.workers {
		w.lenient = false
	}
}

// play lets them write and read until the tries are used up or enough was seen.
func (p *players) play(t *testing.T, tries int) *tally {
	t.Helper()
	seen := &tally{}
	var left atomic.Int64
	left.Store(int64(tries))
	group, ctx := errgroup.WithContext(t.Context())
	for _, w := range p.workers {
		w.tally = seen
		group.Go(func() error { return w.play(ctx, &left, p.enough) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return seen
}

// play is what one of them does.
func (w *worker) play(ctx context.Context, left *atomic.Int64, enough func(*tally) bool) error {
	for left.Add(-1) >= 0 && !enough(w.tally) {
		if err := w.try(ctx); err != nil {
			return fmt.Errorf("%s: %w", w.namespace, err)
		}
		w.tally.tries.Add(1)
	}
	return nil
}

// objects is how many there are.
func (p *players) objects() int {
	n := 0
	for _, w := range p.workers {
		n += len(w.truth)
	}
	return n
}
