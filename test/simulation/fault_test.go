package simulation

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/object"
)

// edited is a cursor whose frames somebody tampers with, a few at a time.
type edited struct {
	source
	stream *stream
	every  int // how rarely
	edit   func(e *edited, frames [][]byte) [][]byte
}

func (e *edited) Next() ([]byte, error) {
	run, err := e.source.Next()
	if err != nil || e.stream.phase != phaseLive || e.stream.sim.rand.IntN(e.every) > 0 {
		return run, err
	}
	var out []byte
	for _, f := range e.edit(e, frames(run, e.stream.client.format.chunked)) {
		out = append(out, f...)
	}
	return out, nil
}

// frames cuts a run.
func frames(run []byte, chunked bool) (all [][]byte) {
	for len(run) > 0 {
		n := bytes.IndexByte(run, '\n') + 1
		if chunked {
			var size int
			fmt.Sscanf(string(run), "%x\r\n", &size)
			n += size + 2
		}
		all = append(all, run[:n:n])
		run = run[n:]
	}
	return all
}

func isEvent(frame []byte) bool { return !bytes.Contains(frame, []byte(`"BOOKMARK"`)) }

// tamper is a fault in what cursors return.
func tamper(edit func(e *edited, frames [][]byte) [][]byte) faults {
	return faults{onSource: func(s *stream, c source) source { return &edited{source: c, stream: s, every: 20, edit: edit} }}
}

// through is a cursor that promises something else.
type through struct {
	source
	rv func(source) uint64
}

func (t *through) Through() uint64 { return t.rv(t.source) }

// open is a cursor that does not know of seams.
type open struct{ source }

func (open) InSeam() bool { return false }

// deaf is a cursor that takes what it must report as nothing more.
type deaf struct{ source }

func (d *deaf) Next() ([]byte, error) {
	run, err := d.source.Next()
	if err != nil && !errors.Is(err, fanout.ErrRetracted) {
		return nil, nil
	}
	return run, err
}

// hoarder is a cursor that queues whatever comes for its client.
type hoarder struct {
	source
	queue []byte
}

func (h *hoarder) Held() int {
	if run, err := h.source.Next(); err == nil {
		h.queue = append(h.queue, run...)
	}
	return len(h.queue)
}

func (h *hoarder) Next() ([]byte, error) {
	if run := h.queue; len(run) > 0 {
		h.queue = nil
		return run, nil
	}
	run, err := h.source.Next()
	return bytes.Clone(run), err
}

func (h *hoarder) InSeam() bool { return len(h.queue) > 0 || h.source.InSeam() }

// planted is each fault and the one check that must see it.
var planted = []struct {
	name   string
	check  Check
	faults func() faults
	adapt  func(*config)
}{
	{"two events change places", Order, func() faults {
		return tamper(func(_ *edited, f [][]byte) [][]byte {
			if len(f) > 1 && isEvent(f[0]) && isEvent(f[1]) && rvOf(f[0]) < rvOf(f[1]) {
				f[0], f[1] = f[1], f[0]
			}
			return f
		})
	}, nil},
	{"an event is lost", Complete, func() faults {
		return tamper(func(_ *edited, f [][]byte) [][]byte {
			if len(f) > 1 && isEvent(f[0]) {
				return f[1:]
			}
			return f
		})
	}, nil},
	{"an event shows another version", Complete, func() faults {
		return tamper(func(_ *edited, f [][]byte) [][]byte {
			for i := range f {
				f[i] = bytes.Replace(f[i], []byte(`"app":"web"`), []byte(`"app":"wab"`), 1)
			}
			return f
		})
	}, nil},
	{"a change is shown as a creation", Complete, func() faults {
		return tamper(func(e *edited, f [][]byte) [][]byte {
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
	{"a resume at P skips the seam's deletions", Complete, func() faults {
		return faults{onResume: resumeAbove}
	}, nil},
	{"an event comes twice", Once, func() faults {
		return tamper(func(_ *edited, f [][]byte) [][]byte {
			if len(f) > 0 && isEvent(f[0]) {
				return append([][]byte{f[0]}, f...)
			}
			return f
		})
	}, nil},
	{"a resume repeats what the client has", Once, func() faults {
		return faults{onResume: func(s *Simulation, rv uint64, sel object.Selector, enc object.Encoding) (source, error) {
			c, err := resume(s, rv, sel, enc)
			if err != nil || rv > s.resource.Through() {
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
		return tamper(func(e *edited, f [][]byte) [][]byte {
			if n := len(f) - 1; n >= 0 && e.stream.client.format.bookmarks && isEvent(f[n]) && rvOf(f[n]) == e.Through() && !e.InSeam() {
				overtaking := fanout.AppendBookmark(nil, e.stream.client.encoding(), e.stream.sim.resource.Template(), rvOf(f[n]), false)
				return append(f[:n:n], overtaking, f[n])
			}
			return f
		})
	}, nil},
	{"a bookmark promises what is not known yet", Bookmark, func() faults {
		return faults{onSource: func(s *stream, c source) source {
			return &through{c, func(c source) uint64 { return c.Through() + 1000 }}
		}}
	}, nil},
	{"frames are queued for a client that stalls", Memory, func() faults {
		return faults{onSource: func(_ *stream, c source) source { return &hoarder{source: c} }}
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
		return faults{onEncoding: func(c *client, enc object.Encoding) object.Encoding {
			enc.Media += fmt.Sprintf(";client=%d", c.id)
			return enc
		}}
	}, nil},
	{"an expired client is not told why", End, func() faults {
		return faults{onFinish: func(s *stream, last []byte) []byte {
			return fanout.AppendEnd(nil, s.client.encoding())
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
			return fanout.AppendBookmark(last, s.client.encoding(), s.sim.resource.Template(), s.sim.resource.Through(), false)
		}}
	}, nil},
	{"a stream expires while history reaches back to it", End, func() faults {
		return faults{onSource: func(s *stream, c source) source { return &impatient{c} }}
	}, nil},
	{"a resume is refused while history reaches back to it", End, func() faults {
		return faults{onResume: func(s *Simulation, rv uint64, sel object.Selector, enc object.Encoding) (source, error) {
			if rv+20 < s.resource.Through() {
				return nil, &cache.ExpiredError{Asked: rv, Oldest: s.resource.Through()}
			}
			return resume(s, rv, sel, enc)
		}}
	}, nil},
	{"a stream outlives void history", End, func() faults {
		return faults{onSource: func(_ *stream, c source) source { return &deaf{c} }}
	}, func(c *config) { c.limits = cache.Limits{HistoryBytes: 1 << 30} }},
	{"a stream is ended inside a seam", Seam, func() faults {
		return faults{onSource: func(s *stream, c source) source { return open{&slow{source: c, stream: s}} }}
	}, nil},
	{"a bookmark inside a seam", Seam, func() faults {
		return faults{onSource: func(s *stream, c source) source {
			if !s.client.format.bookmarks {
				return c
			}
			return open{&diligent{slow: slow{source: c, stream: s}}}
		}}
	}, nil},
}

// resumeAbove is Find without the rule of the seam: after the last entry at or below rv.
func resumeAbove(s *Simulation, rv uint64, sel object.Selector, enc object.Encoding) (source, error) {
	if _, err := s.resource.Log().Find(rv); err != nil || rv > s.resource.Through() {
		return resume(s, rv, sel, enc)
	}
	log := s.resource.Log()
	position := log.Head()
	for ; position > log.First(); position-- {
		if e, ok := log.At(position - 1); !ok || e.RV <= rv {
			break
		}
	}
	return s.hub.From(position, rv, sel, enc), nil
}

// impatient is a cursor that cannot bear to lag.
type impatient struct{ source }

func (i *impatient) Next() ([]byte, error) {
	if i.Lag() > 4 {
		return nil, &cache.ExpiredError{Asked: i.Through(), Oldest: i.Through() + 1}
	}
	return i.source.Next()
}

// slow is a cursor that returns one frame at a time, and lets the stream end in between.
type slow struct {
	source
	stream *stream
	rest   [][]byte
}

func (s *slow) Next() ([]byte, error) {
	if len(s.rest) == 0 {
		run, err := s.source.Next()
		if err != nil || len(run) == 0 || s.stream.phase != phaseLive {
			return run, err
		}
		s.rest = frames(bytes.Clone(run), s.stream.client.format.chunked)
	}
	f := s.rest[0]
	s.rest = s.rest[1:]
	return f, nil
}

// diligent is a cursor that promises what it sent last, even inside a seam, and has a bookmark sent there.
type diligent struct {
	slow
	last   uint64
	paused bool
}

func (d *diligent) Next() ([]byte, error) {
	if _, inside := d.stream.sim.history.now().index(d.last); inside && !d.paused && len(d.rest) > 0 {
		d.paused, d.stream.bookmarkDue = true, true
		return nil, nil
	}
	run, err := d.slow.Next()
	d.last, d.paused = rvOf(run), false
	return run, err
}

func (d *diligent) Through() uint64 {
	if d.paused {
		return d.last
	}
	return d.source.Through()
}

// rvOf is the resourceVersion that a frame shows.
func rvOf(frame []byte) (rv uint64) {
	_, after, _ := strings.Cut(string(frame), `"resourceVersion":"`)
	fmt.Sscanf(after, "%d", &rv)
	return rv
}

// The oracle sees every planted fault, and calls it by its name.
func TestPlantedFaults(t *testing.T) {
	for _, p := range planted {
		t.Run(strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
			caught := 0
			for seed := *first; seed < *first+20 && caught < 5; seed++ {
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
