package clientconn

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
)

// recordedConn is a connection that notes whether it was closed.
type recordedConn struct {
	net.Conn
	from   net.Addr
	closed bool
}

func (v *recordedConn) RemoteAddr() net.Addr { return v.from }

func (v *recordedConn) Close() error {
	v.closed = true
	return nil
}

// connFixture lets walk-ins in.
type connFixture struct {
	*Connections
	all []*PacedConn
}

func newHall(most, perPeer int) *connFixture {
	return &connFixture{Connections: NewConnections(most, perPeer, NewConnMetrics(nil), nil)}
}

// enters is a new connection from a peer, proven and in a state.
func (h *connFixture) enters(from string, p ConnState) *PacedConn {
	c := h.entersUnproven(from, p)
	c.MarkProven()
	return c
}

// entersUnproven is a new connection from a peer in a state.
func (h *connFixture) entersUnproven(from string, p ConnState) *PacedConn {
	c := &PacedConn{Conn: &recordedConn{from: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from + ":1"))}}
	h.admit(c)
	c.SetState(p)
	h.all = append(h.all, c)
	return c
}

func closed(c *PacedConn) bool { return c.Conn.(*recordedConn).closed }

// TestConnectionsMakeRoom shows which connection is evicted for one more.
func TestConnectionsMakeRoom(t *testing.T) {
	type step struct {
		from   string
		phase  ConnState
		before time.Duration // that passes before it comes
	}
	const a, b = "10.0.0.1", "10.0.0.2"
	for _, c := range []struct {
		name          string
		most, perPeer int
		steps         []step
		closed        []int // which of them
		overLimit     bool  // the last one is answered 429
	}{
		{"no limit", 0, 0, []step{{a, StateActive, 0}, {a, StateIdle, 0}, {a, StateNew, 0}}, nil, false},
		{"room", 3, 0, []step{{a, StateActive, 0}, {a, StateIdle, 0}, {a, StateNew, 0}}, nil, false},
		{"idle is evicted before just accepted", 4, 0,
			[]step{{a, StateNew, 0}, {a, StateIdle, 0}, {a, StateIdle, time.Second},
				{a, StateActive, 0}, {a, StateNew, 0}}, []int{1}, false},
		{"new for too long is evicted before idle", 4, 0,
			[]step{{a, StateNew, 0}, {a, StateIdle, 6 * time.Second}, {a, StateActive, 0}, {a, StateActive, 0},
				{a, StateNew, 0}}, []int{0},
			false},
		{"a flood of new ones", 4, 0, []step{{a, StateNew, 0}, {a, StateNew, 0}, {a, StateIdle, 0}, {a, StateActive, 0},
			{a, StateNew, 0}}, []int{0}, false},
		{"only new connections", 2, 0, []step{{a, StateNew, 0}, {a, StateActive, 0}, {a, StateNew, 0}, {a, StateNew, 0}},
			[]int{0, 2}, false},
		{"all are busy", 2, 0, []step{{a, StateActive, 0}, {a, StateActive, 0}, {a, StateNew, 0}}, nil, true},
		{"one peer has too many", 0, 2, []step{{a, StateIdle, 0}, {b, StateIdle, 0}, {a, StateIdle, 0}, {a, StateNew, 0}},
			[]int{0}, false},
		{"one peer is too busy", 0, 2, []step{{a, StateActive, 0}, {b, StateIdle, 0}, {a, StateActive, 0}, {a, StateNew, 0}},
			nil, true},
		{"another peer is not", 0, 2, []step{{a, StateActive, 0}, {a, StateActive, 0}, {b, StateIdle, 0}, {b, StateNew, 0}},
			nil, false},
		{"a peer that makes room for itself does so for all", 2, 2,
			[]step{{a, StateIdle, 0}, {a, StateActive, 0}, {a, StateNew, 0}},
			[]int{0}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHall(c.most, c.perPeer)
				for _, s := range c.steps {
					time.Sleep(s.before)
					h.enters(s.from, s.phase)
				}
				for i, one := range h.all {
					if want := slices.Contains(c.closed, i); closed(one) != want {
						t.Errorf("number %d is closed: %v, want %v", i, closed(one), want)
					}
				}
				if last := h.all[len(h.all)-1]; last.IsOverLimit() != c.overLimit {
					t.Errorf("the last one is over the limit: %v, want %v", last.IsOverLimit(), c.overLimit)
				}
			})
		})
	}
}

// What a client does before it has proven anything keeps no place: neither requests that last, nor
// answers that it does not take.
func TestUnprovenConnectionsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, attackers = 200, 230
		h := newHall(limit, 0)
		for range attackers {
			h.entersUnproven("10.0.0.1", StateActive)
		}
		time.Sleep(newConnMinAge)
		for range 2 * limit {
			c := h.enters("10.0.0.2", StateActive)
			if c.IsOverLimit() {
				t.Fatal("a connection is answered 429")
			}
			_ = c.Close()
		}
		for range limit {
			h.enters("10.0.0.2", StateActive)
		}
		if last := h.enters("10.0.0.2", StateActive); !last.IsOverLimit() {
			t.Error("a proven and active connection was evicted")
		}
	})
}

// The order of eviction, in a hall of 4 that is full.
func TestEvictionOrder(t *testing.T) {
	const from = "10.0.0.1"
	proven := func(p ConnState) func(*connFixture) *PacedConn {
		return func(h *connFixture) *PacedConn { return h.enters(from, p) }
	}
	unproven := func(p ConnState) func(*connFixture) *PacedConn {
		return func(h *connFixture) *PacedConn { return h.entersUnproven(from, p) }
	}
	leaving := func(h *connFixture) *PacedConn {
		c := h.enters(from, StateActive)
		c.MarkLeaving()
		return c
	}
	late := func(enter func(*connFixture) *PacedConn) func(*connFixture) *PacedConn {
		return func(h *connFixture) *PacedConn {
			c := enter(h)
			time.Sleep(newConnTimeout + time.Second)
			return c
		}
	}
	active, idle, fresh := proven(StateActive), proven(StateIdle), proven(StateNew)
	for name, c := range map[string]struct {
		all    [4]func(*connFixture) *PacedConn
		victim int
		reason string
		gently bool
	}{
		"unproven and active for long": {
			[4]func(*connFixture) *PacedConn{idle, late(unproven(StateActive)), active, active},
			1, "unproven", false},
		"unproven and idle for long": {
			[4]func(*connFixture) *PacedConn{idle, late(unproven(StateIdle)), active, active},
			1, "idle", false},
		"new for long": {
			[4]func(*connFixture) *PacedConn{idle, late(fresh), active, active},
			1, "new", false},
		"idle rather than lately unproven": {
			[4]func(*connFixture) *PacedConn{unproven(StateActive), active, idle, active},
			2, "idle", true},
		"lately unproven": {
			[4]func(*connFixture) *PacedConn{active, active, unproven(StateActive), active},
			2, "unproven", false},
		"lately unproven, rather than left": {
			[4]func(*connFixture) *PacedConn{leaving, unproven(StateActive), active, active},
			1, "unproven", false},
		"left": {
			[4]func(*connFixture) *PacedConn{active, leaving, leaving, active},
			1, "leaving", false},
		"many unproven are a flood": {
			[4]func(*connFixture) *PacedConn{idle, unproven(StateActive), unproven(StateIdle), active},
			1, "unproven", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHall(4, 0)
				evicted := -1
				for i, enter := range c.all {
					enter(h).OnEvict(func(gently bool) {
						if evicted = i; gently != c.gently {
							t.Errorf("number %d is evicted gently: %v", i, gently)
						}
					})
				}
				time.Sleep(newConnMinAge)
				h.enters(from, StateActive)
				if evicted != c.victim {
					t.Errorf("number %d is evicted, want %d", evicted, c.victim)
				}
				var counted dto.Metric
				if err := h.metrics.evicted.WithLabelValues(c.reason).Write(&counted); err != nil {
					t.Fatal(err)
				}
				if n := counted.Counter.GetValue(); n != 1 {
					t.Errorf("%v were evicted as %s", n, c.reason)
				}
			})
		})
	}
}

// While memory is short, connections that have proven nothing end within seconds, sooner without a
// request than with one, and no others.
func TestShortMemoryEvictsUnprovenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(0, 0)
		look := func(want int) {
			t.Helper()
			for range 100 {
				h.EvictUnproven()
			}
			if n := h.Open(); n != want {
				t.Errorf("%d are open, want %d", n, want)
			}
		}
		for range 500 {
			h.entersUnproven("10.0.0.1", StateActive)
			h.entersUnproven("10.0.0.1", StateNew)
		}
		active, idle := h.enters("10.0.0.2", StateActive), h.enters("10.0.0.2", StateIdle)
		look(1002)
		time.Sleep(newConnMinAge)
		look(502)
		time.Sleep(newConnTimeout - newConnMinAge)
		fresh := h.entersUnproven("10.0.0.3", StateNew)
		look(3)
		if closed(active) || closed(idle) || closed(fresh) {
			t.Errorf("closed are %v, %v, %v", closed(active), closed(idle), closed(fresh))
		}
	})
}

// TestConnectionsSurplus shows that few connections beyond the limit are answered 429, and that
// those that have waited for longest are cut.
func TestConnectionsSurplus(t *testing.T) {
	h := newHall(1, 0)
	h.enters("10.0.0.1", StateActive)
	for range overLimitConnsLimit + 3 {
		h.enters("10.0.0.2", StateNew)
	}
	for i, c := range h.all {
		if want := i >= 1 && i <= 3; closed(c) != want {
			t.Errorf("number %d is closed: %v, want %v", i, closed(c), want)
		}
	}
}

// TestConnectionsHaveAMoment shows that no connection is evicted before newConnMinAge. The next one
// waits for that, or until another one is closed.
func TestConnectionsHaveAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(2, 0)
		first, second := h.enters("10.0.0.1", StateNew), h.enters("10.0.0.1", StateActive)
		began := time.Now()
		h.enters("10.0.0.2", StateNew)
		if waited := time.Since(began); !closed(first) || waited < newConnMinAge || waited > newConnMinAge+
			2*admitRetryInterval {
			t.Errorf("the first one is closed: %v, after %v; want that after %v", closed(first), waited, newConnMinAge)
		}
		go func() {
			time.Sleep(newConnMinAge / 4)
			_ = second.Close()
		}()
		began = time.Now()
		if h.enters("10.0.0.2", StateNew); time.Since(began) > newConnMinAge/4+2*admitRetryInterval {
			t.Errorf("it waited %v for room that there was", time.Since(began))
		}

		over := make(chan struct{})
		h.isOver = over
		close(over)
		began = time.Now()
		if h.enters("10.0.0.2", StateNew); time.Since(began) != 0 {
			t.Error("it waited for a server that closes")
		}
	})
}

// Whatever happens, each connection is counted once while it is there, and nothing is left of those
// that are not.
func TestConnectionsCount(t *testing.T) {
	synctest.Test(t, connectionsCount)
}

func connectionsCount(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const most, perPeer = 20, 7
	h := newHall(most, perPeer)
	for range 20_000 {
		switch n := len(h.all); {
		case n == 0 || random.IntN(3) == 0:
			h.entersUnproven(fmt.Sprintf("10.0.0.%d", random.IntN(5)), StateNew)
		case random.IntN(3) == 0:
			one := h.all[random.IntN(n)]
			_ = one.Close()
		default:
			one := h.all[random.IntN(n)]
			one.SetState([]ConnState{StateNew, StateIdle, StateActive}[random.IntN(3)])
			if random.IntN(3) == 0 {
				one.MarkProven()
			}
			if random.IntN(20) == 0 {
				one.MarkLeaving()
			}
		}
		h.all = slices.DeleteFunc(h.all, closed)
		peers := map[netip.Addr]int{}
		open, overLimit := 0, 0
		for _, c := range h.all {
			if c.IsOverLimit() {
				overLimit++
				continue
			}
			open++
			peers[AddressOf(c.RemoteAddr())]++
		}
		counted, surplus := h.mu.all.open, h.mu.all.waiting[queueOverLimit].length
		if counted != open || open > most || surplus != overLimit || len(h.mu.peers) != len(peers) {
			t.Fatalf("%d are open and %d over the limit, %d and %d are counted; %d peers, %d counted", open, overLimit,
				counted, surplus, len(peers), len(h.mu.peers))
		}
		for peer, n := range peers {
			if got := h.mu.peers[peer].open; got != n || n > perPeer {
				t.Fatalf("%s has %d, counted %d", peer, n, got)
			}
		}
		for _, q := range h.mu.all.waiting {
			n := 0
			for c := q.first; c != nil; c = c.tracking.links[0].after {
				n++
			}
			if n != q.length {
				t.Fatalf("a queue of %d has %d", q.length, n)
			}
		}
	}
}

// failingListener is a listener that fails a few times.
type failingListener struct {
	net.Listener
	errs []error
}

func (s *failingListener) Accept() (net.Conn, error) {
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return nil, err
	}
	c, far := net.Pipe()
	_ = far.Close()
	return c, nil
}

// A system that is short of descriptors for a moment does not end the server.
func TestAcceptSurvivesAShortageOfDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := &net.OpError{Op: "accept", Err: syscall.EMFILE}
		aborted := &net.OpError{Op: "accept", Err: syscall.ECONNABORTED}
		l := Listener{Listener: &failingListener{errs: []error{short, short, aborted}}, Log: zap.NewNop()}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		for _, final := range []error{net.ErrClosed, io.EOF, &net.OpError{Op: "accept", Err: syscall.EINVAL}} {
			l.Listener = &failingListener{errs: []error{final}}
			if _, err := l.Accept(); !errors.Is(err, final) {
				t.Errorf("%v became %v", final, err)
			}
		}
	})
}

// An unproven connection cannot renew its age or its place by requests that cost nothing: others
// get its room.
func TestUnprovenConnectionsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 8
		h := newHall(most, 0)
		for range most {
			h.entersUnproven("10.0.0.1", StateNew)
		}
		renew := func() {
			for _, c := range h.all {
				c.SetState(StateActive)
				c.SetState(StateIdle)
				c.SetState(StateNew)
			}
		}
		for range 3 {
			time.Sleep(newConnMinAge / 2)
			renew()
		}
		began := time.Now()
		h.enters("10.0.0.2", StateActive)
		if took := time.Since(began); took > 0 {
			t.Errorf("another client waited for %v", took)
		}
		if !closed(h.all[0]) {
			t.Error("the oldest connection was not evicted")
		}
	})
}
