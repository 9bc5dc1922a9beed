package simulation

import (
	"bytes"
	"fmt"
	"strings"

	"spillway/internal/cache"
	"spillway/internal/object"
)

// tamperingCursor is a cursor whose frames a fault tampers with, a few at a time.
type tamperingCursor struct {
	source
	stream *stream
	every  int // how rarely
	edit   func(e *tamperingCursor, frames [][]byte) [][]byte
}

func (e *tamperingCursor) Next() ([]byte, error) {
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
func tamper(edit func(e *tamperingCursor, frames [][]byte) [][]byte) faults {
	return faults{onSource: func(s *stream, c source) source {
		return &tamperingCursor{source: c, stream: s, every: 20, edit: edit}
	}}
}

// overpromisingCursor is a cursor that promises something else.
type overpromisingCursor struct {
	source
	rv func(source) uint64
}

func (t *overpromisingCursor) CompleteRV() uint64 { return t.rv(t.source) }

// open is a cursor that does not know of seams.
type open struct{ source }

func (open) InSeam() bool { return false }

// laggingCursor is a cursor that takes what it must report as nothing more.
type laggingCursor struct{ source }

func (d *laggingCursor) Next() ([]byte, error) {
	run, err := d.source.Next()
	if err != nil {
		return nil, nil
	}
	return run, err
}

// queueingCursor is a cursor that queues whatever comes for its client.
type queueingCursor struct {
	source
	queue []byte
}

func (h *queueingCursor) BufferedBytes() int {
	if run, err := h.source.Next(); err == nil {
		h.queue = append(h.queue, run...)
	}
	return len(h.queue)
}

func (h *queueingCursor) Next() ([]byte, error) {
	if run := h.queue; len(run) > 0 {
		h.queue = nil
		return run, nil
	}
	run, err := h.source.Next()
	return bytes.Clone(run), err
}

func (h *queueingCursor) InSeam() bool { return len(h.queue) > 0 || h.source.IsInSeam() }

// resumeAbove is Find without the rule of the seam: after the last entry at or below rv.
func resumeAbove(s *Simulation, rv uint64, sel object.Selector, enc object.Encoding) (source, error) {
	if _, err := s.resource.Log().Find(rv); err != nil || rv > s.resource.CompleteRV() {
		return resume(s, rv, sel, enc)
	}
	log := s.resource.Log()
	position := log.Head()
	for ; position > log.First(); position-- {
		if e, ok := log.EntryAt(position - 1); !ok || e.RV <= rv {
			break
		}
	}
	return s.hub.ViewFor("").CursorAt(position, rv, sel, enc), nil
}

// endingCursor is a cursor that cannot bear to lag.
type endingCursor struct{ source }

func (i *endingCursor) Next() ([]byte, error) {
	if i.Lag() > 4 {
		return nil, &cache.ExpiredError{RequestedRV: i.CompleteRV(), OldestRV: i.CompleteRV() + 1}
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

// seamBookmarkCursor is a cursor that promises what it sent last, even inside a seam, and has a
// bookmark sent there.
type seamBookmarkCursor struct {
	slow
	last   uint64
	paused bool
}

func (d *seamBookmarkCursor) Next() ([]byte, error) {
	if _, inside := d.stream.sim.history.now().index(d.last); inside && !d.paused && len(d.rest) > 0 {
		d.paused, d.stream.bookmarkDue = true, true
		return nil, nil
	}
	run, err := d.slow.Next()
	d.last, d.paused = rvOf(run), false
	return run, err
}

func (d *seamBookmarkCursor) CompleteRV() uint64 {
	if d.paused {
		return d.last
	}
	return d.source.CompleteRV()
}

// rvOf is the resourceVersion that a frame shows.
func rvOf(frame []byte) (rv uint64) {
	_, after, _ := strings.Cut(string(frame), `"resourceVersion":"`)
	fmt.Sscanf(after, "%d", &rv)
	return rv
}
