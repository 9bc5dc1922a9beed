package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"spillway/internal/cache"
)

// scripted is a simulation whose steps a test writes.
func scripted(t *testing.T, script func(s *Simulation)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(
			rand.New(rand.NewPCG(1, 1)), config{limits: cache.HistoryLimits{HistoryBytes: 1 << 30}, padding: 0})
		script(s)
		s.rest()
		if v := s.violation; v != nil {
			t.Errorf("check %q: %s", v.Check, v.Text)
		}
	})
}

func (s *Simulation) client(k kind, f format) *client {
	c := newClient(s, len(s.clients))
	c.kind, c.filter, c.format = k, filter{}, f
	s.clients = append(s.clients, c)
	return c
}

func (s *Simulation) put(names ...string) {
	for _, name := range names {
		s.up.put(&version{namespace: "z", name: name, app: "web"})
	}
}

// gapped is a history with a seam: five objects go, of which the last is the one written at p; one
// changes, one comes.
func gapped(s *Simulation, before func()) (p, l uint64, seam []string) {
	for _, key := range slices.Sorted(keys(s.up.state)) {
		s.up.remove(key)
	}
	s.put("stays", "changes", "goes1", "goes2", "goes3", "goes4", "goes5")
	s.mirror.deliver(100)
	p = s.up.rv
	s.dispatch()
	before()
	s.put("passes") // comes and goes unseen
	for _, name := range []string{"goes2", "goes1", "passes", "goes4", "goes3", "goes5"} {
		s.up.remove("z/" + name)
	}
	s.put("changes", "comes")
	s.up.rv += 3
	l = s.up.rv
	s.mirror.relist()
	s.dispatch()
	return p, l, []string{
		fmt.Sprintf("DELETED z/goes1 %d", p), fmt.Sprintf("DELETED z/goes2 %d", p), fmt.Sprintf("DELETED z/goes3 %d", p),
		fmt.Sprintf("DELETED z/goes4 %d", p), fmt.Sprintf("MODIFIED z/changes %d", p+8), fmt.Sprintf("ADDED z/comes %d", p+9),
		fmt.Sprintf("DELETED z/goes5 %d", l),
	}
}

func keys(m map[string]*version) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// take reads bytes until n messages more have come, and some of the next one.
func (c *client) take(n, more int) {
	for n += len(c.got); len(c.got) < n && c.stream.pump(1); {
	}
	for ; more > 0; more-- {
		c.stream.pump(1)
	}
}

// A client that vanishes anywhere inside a seam ends up with the truth, whether it takes bookmarks
// or not: it gets the deletions again, or a 410, and never keeps a ghost.
func TestClientCutInsideASeam(t *testing.T) {
	for _, k := range []kind{watchList, consistentList, listWatch, events} {
		for _, f := range []format{{true, true}, {false, true}, {true, false}, {false, false}} {
			if k <= consistentList && !f.bookmarks {
				continue
			}
			for cut := range 9 {
				for _, more := range []int{0, 1, 40} {
					t.Run(fmt.Sprintf("kind=%d/%+v/cut=%d+%d", k, f, cut, more), func(t *testing.T) {
						scripted(t, func(s *Simulation) { cutInside(t, s, s.client(k, f), cut, more) })
					})
				}
			}
		}
	}
}

func cutInside(t *testing.T, s *Simulation, c *client, cut, more int) {
	p, l, seam := gapped(s, func() {
		if c.kind == events {
			c.last = s.up.rv
			c.session = newSession(c)
		}
		c.connect()
		c.stream.prove()
		c.drain()
	})
	if c.format.bookmarks {
		seam = append(seam, fmt.Sprintf("BOOKMARK %d", l))
	}
	before := len(c.got)
	cut = min(cut, len(seam))
	c.take(cut, min(more, 40*(len(seam)-cut)))
	if got := c.got[before:]; !slices.Equal(got, seam[:cut]) {
		t.Fatalf("before the cut:\ngot  %q\nwant %q", got, seam[:cut])
	}
	last := c.last
	c.cut()
	c.connect()
	c.drain()
	switch {
	case last == p && !slices.Equal(c.got, seam):
		t.Fatalf("a resume at P:\ngot  %q\nwant %q", c.got, seam)
	case last == l && len(c.got) > 0:
		t.Fatalf("a resume at L got %q", c.got)
	case last > p && last < l && s.counts.Expired != 1:
		t.Fatalf("a resume at %d, inside the gap (%d, %d), did not expire", last, p, l)
	case last == 0:
		t.Fatal("the client saw nothing")
	}
	c.rest()
}

// Every resourceVersion around a seam, for clients that start when it is there and those that were
// waiting for it.
func TestResumeAroundASeam(t *testing.T) {
	for _, bookmarks := range []bool{true, false} {
		for _, early := range []bool{false, true} {
			for at := -2; at <= 16; at++ {
				t.Run(fmt.Sprintf("bookmarks=%v/early=%v/P%+d", bookmarks, early, at), func(t *testing.T) {
					scripted(t, func(s *Simulation) {
						c := s.client(events, format{true, bookmarks})
						start := func() {
							c.last = s.history.now().through + uint64(at)
							c.session = newSession(c)
							c.connect()
						}
						p, l, seam := gapped(s, func() {
							if early {
								start()
							}
						})
						if !early {
							c.last = p + uint64(at)
							c.session = newSession(c)
							c.connect()
						}
						resumeAround(t, s, c, p, l, uint64(int64(p)+int64(at)), seam)
					})
				})
			}
		}
	}
}

func resumeAround(t *testing.T, s *Simulation, c *client, p, l, at uint64, want []string) {
	if c.format.bookmarks {
		want = append(want, fmt.Sprintf("BOOKMARK %d", l))
	}
	before := []string{fmt.Sprintf("ADDED z/goes4 %d", p-1), fmt.Sprintf("ADDED z/goes5 %d", p)}
	switch {
	case at < p:
		want = append(before[2-(p-at):], want...)
	case at > p && at < l:
		want = []string{fmt.Sprintf("ERROR 410 too old resource version: %d (%d)", at, l)}
	case at >= l:
		want = nil
	}
	c.stream.pump(1 << 20)
	if !slices.Equal(c.got, want) {
		t.Fatalf("at %d of P=%d, L=%d:\ngot  %q\nwant %q", at, p, l, c.got, want)
	}
}
