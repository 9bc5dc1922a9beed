package flowcontrol

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// in checks that a request is admitted at once.
func in(t *testing.T, g *Gate, k Flow, width int64) *Permit {
	t.Helper()
	p, refusal := g.Admit(t.Context(), k, width)
	if refusal != nil {
		t.Fatalf("%v, width %d: %+v", k, width, refusal)
	}
	return &p
}

// refused checks why and for how long.
func refused(t *testing.T, r *Refusal, want Reason) {
	t.Helper()
	if r == nil {
		t.Fatalf("admitted, want %s", want)
	}
	if r.Reason != want {
		t.Fatalf("refused for %s, want %s", r.Reason, want)
	}
	if r.RetryAfter < time.Second || r.RetryAfter > retryAfterMax || r.RetryAfter%time.Second != 0 {
		t.Fatalf("retry after %s, want whole seconds from 1 s to %s", r.RetryAfter, retryAfterMax)
	}
}

func empty(t *testing.T, g *Gate) {
	t.Helper()
	if l := g.Stats(); l.Held != 0 || l.Waiting != 0 || l.Flows != 0 {
		t.Errorf("want nothing held and no request waiting, got %+v", l)
	}
}

// A gate without limits is nil, and admits every request.
func TestGateNone(t *testing.T) {
	g := NewGate(Options{Waiting: 1, WaitingEach: 1, Wait: time.Second})
	if g != nil {
		t.Fatal("a gate that limits nothing")
	}
	p := in(t, g, key(0), 1<<40)
	p.Release()
	if p, ok := g.Try(key(0), 1); !ok {
		t.Error("refused")
	} else {
		p.Release()
	}
	if g.Stats() != (GateStats{}) {
		t.Error("a load")
	}
}

// Without a queue, a request beyond the limit or its flow's share is refused at once.
func TestGateWithoutQueue(t *testing.T) {
	g := NewGate(Options{Limit: 3, Share: 2})
	a, b := in(t, g, key(0), 1), in(t, g, key(0), 1)
	_, r := g.Admit(t.Context(), key(0), 1)
	refused(t, r, ReasonShare)
	c := in(t, g, key(1), 1)
	_, r = g.Admit(t.Context(), key(1), 1)
	refused(t, r, ReasonLimit)
	a.Release()
	a.Release() // does nothing
	if l := g.Stats(); l.Held != 2 || l.Limit != 3 {
		t.Errorf("load %+v", l)
	}
	d := in(t, g, key(1), 1)
	for _, p := range []*Permit{b, c, d} {
		p.Release()
	}
	empty(t, g)
}

// A share alone limits each flow, and not all together.
func TestGateShareAlone(t *testing.T) {
	g := NewGate(Options{Share: 1})
	var all []*Permit
	for n := range 1000 {
		all = append(all, in(t, g, key(n), 1))
		_, r := g.Admit(t.Context(), key(n), 1)
		refused(t, r, ReasonShare)
	}
	if l := g.Stats(); l.Held != 1000 || l.Limit != 0 {
		t.Errorf("load %+v", l)
	}
	for _, p := range all {
		p.Release()
	}
	empty(t, g)
}

// A request that waits is admitted when there is room, and refused when its time is over, when its
// client leaves, and when the queue is full.
func TestGateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Options{Limit: 1, Waiting: 3, WaitingEach: 2, Wait: 5 * time.Second})
		first := in(t, g, key(0), 1)

		gone, cancel := context.WithCancel(t.Context())
		results := make([]chan *Refusal, 3)
		began := time.Now()
		for i, ctx := range []context.Context{t.Context(), gone, t.Context()} {
			results[i] = make(chan *Refusal, 1)
			go func() {
				p, r := g.Admit(ctx, key(min(i, 1)), 1)
				results[i] <- r
				time.Sleep(time.Second)
				p.Release()
			}()
			synctest.Wait()
		}
		_, r := g.Admit(t.Context(), key(1), 1)
		refused(t, r, ReasonQueueFull)
		_, r = g.Admit(t.Context(), key(2), 1) // two of key(1) wait, one may have their place
		if r == nil {
			t.Fatal("admitted")
		}
		if since := time.Since(began); since != 5*time.Second {
			t.Errorf("waited %s, want 5 s", since)
		}
		refused(t, r, ReasonTimeout)
		refused(t, <-results[2], ReasonQueueFull) // displaced by key(2)
		synctest.Wait()
		cancel()
		refused(t, <-results[1], ReasonTimeout) // its time was up, too
		refused(t, <-results[0], ReasonTimeout)
		first.Release()
		time.Sleep(2 * time.Second) // for the others
		empty(t, g)
	})
}

// A request that is admitted while its client leaves is admitted, and nothing is lost.
func TestGateCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Options{Limit: 1, Waiting: 10, WaitingEach: 10, Wait: time.Hour})
		first := in(t, g, key(0), 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan *Refusal, 1)
		go func() {
			p, r := g.Admit(ctx, key(1), 1)
			p.Release()
			done <- r
		}()
		synctest.Wait()
		cancel()
		refused(t, <-done, ReasonCancelled)
		first.Release()
		empty(t, g)
	})
}

// Many requests that arrive, wait, time out and are released at once never hold more than the
// limit, and nothing stays held.
func TestGateMany(t *testing.T) {
	const limit, share = 64, 24
	g := NewGate(Options{Limit: limit, Share: share, Waiting: 40, WaitingEach: 10, Wait: 2 * time.Millisecond})
	var inside, let, sent atomic.Int64
	var all sync.WaitGroup
	for n := range 100 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 2))
			for range 100 {
				width := 1 + r.Int64N(2*share)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(3000))*time.Microsecond)
				p, refusal := g.Admit(ctx, key(n%7), width)
				cancel()
				if refusal != nil {
					sent.Add(1)
					continue
				}
				let.Add(1)
				counted := min(width, share)
				if now := inside.Add(counted); now > limit {
					t.Errorf("%d of %d are held", now, limit)
				}
				time.Sleep(time.Duration(r.IntN(200)) * time.Microsecond)
				inside.Add(-counted)
				p.Release()
			}
		})
	}
	all.Wait()
	empty(t, g)
	if let.Load() == 0 || sent.Load() == 0 {
		t.Errorf("%d were admitted and %d refused: this test shows nothing", let.Load(), sent.Load())
	}
}

// Where there is room, nothing is allocated.
func TestGateAllocations(t *testing.T) {
	g := NewGate(Options{Limit: 100, Waiting: 10, WaitingEach: 10, Wait: time.Second})
	k := key(0)
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() {
		p, _ := g.Admit(ctx, k, 10)
		p.Release()
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// A host with an IPv6 network of its own is one flow, whichever of its addresses it uses.
func TestAddrFlow(t *testing.T) {
	f := func(a, b string, same bool) {
		t.Helper()
		if got := AddrFlow(netip.MustParseAddr(a)) == AddrFlow(netip.MustParseAddr(b)); got != same {
			t.Errorf("%s and %s: same flow %v, want %v", a, b, got, same)
		}
	}
	f("10.0.0.1", "10.0.0.1", true)
	f("10.0.0.1", "10.0.0.2", false)
	f("::ffff:10.0.0.1", "10.0.0.1", true)
	f("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true)
	f("2001:db8:1:2::1", "2001:db8:1:3::1", false)
	f("fe80::1%eth0", "fe80::2%eth1", true)
	if AddrFlow(netip.Addr{}) != (Flow{}) {
		t.Error("no address is the zero flow")
	}
	if UserFlow("10.0.0.1") == AddrFlow(netip.MustParseAddr("10.0.0.1")) {
		t.Error("a user whose name is an address is not that address")
	}
}

func BenchmarkGate(b *testing.B) {
	newGate := func() *Gate {
		return NewGate(Options{Limit: 1 << 20, Waiting: 1000, WaitingEach: 100, Wait: time.Second})
	}
	b.Run("alone", func(b *testing.B) {
		g, k := newGate(), key(0)
		b.ReportAllocs()
		for b.Loop() {
			p, _ := g.Admit(b.Context(), k, 1)
			p.Release()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		g := newGate()
		b.ReportAllocs()
		var n atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			k := key(int(n.Add(1)))
			for pb.Next() {
				p, _ := g.Admit(b.Context(), k, 1)
				p.Release()
			}
		})
	})
	b.Run("contended", func(b *testing.B) { // each release admits a request of one of a thousand flows
		l := newGateState(Options{Limit: 1, Share: 1, Waiting: 1000, WaitingEach: 10})
		inside, _ := l.take(key(0), 1)
		for n := range 1000 {
			l.join(key(n), 1)
		}
		b.ReportAllocs()
		for b.Loop() {
			next := l.turns[0]
			l.release(inside, 1)
			inside = next
			l.join(next.key, 1)
		}
	})
}

// What no other flow wants one may have, but for the reserve; and what others want of the reserve,
// up to their share, the first one does not get back.
func TestShareWithReserve(t *testing.T) {
	g := NewGate(Options{Limit: 16, Share: 8, Reserve: 2})
	var passes []*Permit
	for range 14 {
		passes = append(passes, in(t, g, key(0), 1))
	}
	_, refusal := g.Admit(t.Context(), key(0), 1)
	refused(t, refusal, ReasonShare)
	for range 2 {
		passes = append(passes, in(t, g, key(1), 1))
	}
	_, refusal = g.Admit(t.Context(), key(1), 1)
	refused(t, refusal, ReasonLimit)
	for range 6 { // what the first gives back is the others', until it is within its share
		passes[0].Release()
		passes = passes[1:]
		_, refusal = g.Admit(t.Context(), key(0), 1)
		refused(t, refusal, ReasonShare)
		passes = append(passes, in(t, g, key(1), 1))
	}
	passes[0].Release()
	passes[0] = in(t, g, key(0), 1)
	for _, p := range passes {
		p.Release()
	}
	empty(t, g)
}
