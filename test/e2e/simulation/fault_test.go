package simulation

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/object"
)

// planted is each fault and the one check that must see it.
var planted = []struct {
	name   string
	check  Check
	faults func() faults
	adapt  func(*config)
}{
	{"two events change places", Order, func() faults {
		return tamper(func(_ *tamperingCursor, f [][]byte) [][]byte {
			if len(f) > 1 && isEvent(f[0]) && isEvent(f[1]) && rvOf(f[0]) < rvOf(f[1]) {
				f[0], f[1] = f[1], f[0]
			}
			return f
		})
	}, nil},
	{"an event is lost", Complete, func() faults {
		return tamper(func(_ *tamperingCursor, f [][]byte) [][]byte {
			if len(f) > 1 && isEvent(f[0]) {
				return f[1:]
			}
			return f
		})
	}, nil},
	{"an event shows another version", Complete, func() faults {
		return tamper(func(_ *tamperingCursor, f [][]byte) [][]byte {
			for i := range f {
				f[i] = bytes.Replace(f[i], []byte(`"app":"web"`), []byte(`"app":"wab"`), 1)
			}
			return f
		})
	}, nil},
	{"a change is shown as a creation", Complete, func() faults {
		return tamper(func(e *tamperingCursor, f [][]byte) [][]byte {
			if e.stream.client.format.chunked {
				return f
			}
			for i := range f {
				f[i] = bytes.Replace(f[i], []byte(`"MODIFIED"`), []byte(`"ADDED"`), 1)
			}
			return f
		})
	}, nil},
	{"a stream begins after its state", Complete, func() faults {
		return faults{onStart: func(s *cache.Snapshot) uint64 { return s.Next + 1 }}
	}, nil},
	{"the snapshot is taken after the head", Complete, func() faults { return faults{late: true} }, nil},
	{"the end of the state is told without a proof", Bookmark, func() faults {
		return faults{onProof: func(uint64) uint64 { return 0 }}
	}, nil},
	{"a resume at P skips the seam's deletions", Complete, func() faults {
		return faults{onResume: resumeAbove}
	}, nil},
	{"an event comes twice", Once, func() faults {
		return tamper(func(_ *tamperingCursor, f [][]byte) [][]byte {
			if len(f) > 0 && isEvent(f[0]) {
				return append([][]byte{f[0]}, f...)
			}
			return f
		})
	}, nil},
	{"a resume repeats what the client has", Once, func() faults {
		return faults{onResume: func(s *Simulation, rv uint64, sel object.Selector, enc object.Encoding) (source, error) {
			c, err := resume(s, rv, sel, enc)
			if err != nil || rv > s.resource.CompleteRV() {
				return c, err
			}
			if again, err := resume(s, rv-4, sel, enc); err == nil {
				c.Close()
				return again, nil
			}
			return c, nil
		}}
	}, nil},
	{"a bookmark overtakes an event", Bookmark, func() faults {
		return tamper(func(e *tamperingCursor, f [][]byte) [][]byte {
			if n := len(f) - 1; n >= 0 && e.stream.client.format.bookmarks && isEvent(f[n]) && rvOf(f[n]) == e.CompleteRV() &&
				!e.IsInSeam() {
				overtaking := made(fanout.AppendBookmark(nil, e.stream.client.format.encoding(),
					e.stream.sim.resource.BookmarkTemplate(),
					rvOf(f[n]), false))
				return append(f[:n:n], overtaking, f[n])
			}
			return f
		})
	}, nil},
	{"a bookmark promises what is not known yet", Bookmark, func() faults {
		return faults{onSource: func(s *stream, c source) source {
			return &overpromisingCursor{c, func(c source) uint64 { return c.CompleteRV() + 1000 }}
		}}
	}, nil},
	{"frames are queued for a client that stalls", Memory, func() faults {
		return faults{onSource: func(_ *stream, c source) source { return &queueingCursor{source: c} }}
	}, func(c *config) { c.padding = 3000 }},
	{"the hub waits for a client to read", Dispatch, func() faults {
		room := make(chan struct{})
		return faults{onDispatch: func(s *Simulation) {
			s.hub.Dispatch()
			for _, c := range s.clients {
				if c.stalled && c.stream != nil {
					<-room // in its queue
				}
			}
		}, onRest: func() { close(room) }}
	}, nil},
	{"the hub gives a slow client time", Dispatch, func() faults {
		return faults{onDispatch: func(s *Simulation) {
			s.hub.Dispatch()
			for _, c := range s.clients {
				if c.stalled {
					time.Sleep(100 * time.Millisecond)
				}
			}
		}}
	}, nil},
	{"the hub puts events off while a client stalls", Dispatch, func() faults {
		return faults{onDispatch: func(s *Simulation) {
			for _, c := range s.clients {
				if c.stalled {
					return
				}
			}
			s.hub.Dispatch()
		}}
	}, nil},
	{"every client has a feed of its own", Encoded, func() faults {
		return faults{onSelector: func(c *client) object.Selector {
			all, _ := labels.ParseToRequirements(fmt.Sprintf("client!=%d", c.id)) // no object has the label
			return c.filter.selector(all...)
		}}
	}, nil},
	{"an expired client is not told why", End, func() faults {
		return faults{onFinish: func(s *stream, last []byte) []byte {
			return fanout.AppendEnd(nil, s.client.format.encoding())
		}}
	}, nil},
	{"an end is not told", End, func() faults {
		return faults{onFinish: func(s *stream, last []byte) []byte {
			return bytes.TrimSuffix(last, []byte("0\r\n\r\n"))
		}}
	}, nil},
	{"a stream ends twice", End, func() faults {
		return faults{onFinish: func(s *stream, last []byte) []byte {
			s.reasons = append(s.reasons, deadline)
			return last
		}}
	}, nil},
	{"something comes after the end", End, func() faults {
		return faults{onFinish: func(s *stream, last []byte) []byte {
			if !s.client.format.chunked {
				return last
			}
			return made(fanout.AppendBookmark(last, s.client.format.encoding(), s.sim.resource.BookmarkTemplate(),
				s.sim.resource.CompleteRV(), false))
		}}
	}, nil},
	{"a stream expires while history reaches back to it", End, func() faults {
		return faults{onSource: func(s *stream, c source) source { return &endingCursor{c} }}
	}, nil},
	{"a resume is refused while history reaches back to it", End, func() faults {
		return faults{onResume: func(s *Simulation, rv uint64, sel object.Selector, enc object.Encoding) (source, error) {
			if rv+20 < s.resource.CompleteRV() {
				return nil, &cache.ExpiredError{RequestedRV: rv, OldestRV: s.resource.CompleteRV()}
			}
			return resume(s, rv, sel, enc)
		}}
	}, nil},
	{"a stream outlives void history", End, func() faults {
		return faults{onSource: func(_ *stream, c source) source { return &laggingCursor{c} }}
	}, func(c *config) { c.limits = cache.HistoryLimits{HistoryBytes: 1 << 30} }},
	{"a stream is ended inside a seam", Seam, func() faults {
		return faults{onSource: func(s *stream, c source) source { return open{&slow{source: c, stream: s}} }}
	}, nil},
	{"a bookmark inside a seam", Seam, func() faults {
		return faults{onSource: func(s *stream, c source) source {
			if !s.client.format.bookmarks {
				return c
			}
			return open{&seamBookmarkCursor{slow: slow{source: c, stream: s}}}
		}}
	}, nil},
}

// The oracle sees every planted fault, and calls it by its name.
func TestPlantedFaults(t *testing.T) {
	for _, p := range planted {
		t.Run(strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
			caught := 0
			for seed := *first; seed < *first+20 && caught < 3; seed++ {
				v, _ := run(t, seed, 400, func(c *config) {
					c.faults = p.faults()
					if p.adapt != nil {
						p.adapt(c)
					}
				})
				if v == nil {
					continue
				}
				caught++
				if v.Check != p.check {
					t.Errorf("seed %d: found by check %q, not by %q: %s", seed, v.Check, p.check, v.Text)
				}
			}
			if caught == 0 {
				t.Errorf("no run of 20 sees it")
			}
		})
	}
}
