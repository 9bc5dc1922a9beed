package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	"spillway/internal/fanout"
)

// figures are what only whoever delivers a stream knows.
type figures struct {
	over     bool // there is nothing to know any more
	live     bool // it is past its initial events
	bytes    int64
	standing fanout.Standing
	unsent   int
	waited   time.Time // for the client to take something, since then; zero: it is not
}

// errClosing says that nobody is left to ask.
var errClosing = errors.New("the proxy is stopping")

// figures are those of streams, in their order.
func (m *Manager) figures(ctx context.Context, streams []*Stream) ([]figures, error) {
	known := make([]figures, len(streams))
	questions := map[*writer]*count{}
	for i, st := range streams {
		if slot := st.slot.Load(); slot != nil {
			q := questions[slot.writer]
			if q == nil {
				q = &count{done: make(chan struct{})}
				questions[slot.writer] = q
			}
			q.slots, q.into = append(q.slots, slot), append(q.into, &known[i])
		} else if told := st.told.Load(); told != nil {
			known[i] = told.now()
		}
	}
	for w, q := range questions {
		w.ask(q)
	}
	for _, q := range questions {
		select {
		case <-q.done:
		case <-ctx.Done():
			return nil, ctx.Err() // what was asked may be answered yet, and nobody looks
		case <-m.base.Done():
			return nil, errClosing
		}
	}
	return known, nil
}

// count is a question to a writer: how its slots stand, or some of them. It is answered between
// turns, a few slots at a time, so that no event waits for it, and nothing is kept up to date for
// those who might ask.
type count struct {
	slots []*slot
	into  []*figures // for each, where the answer goes
	done  chan struct{}
}

// countSize is how many slots are counted before the next turns: some 20 µs of them.
const countSize = 128

// ask puts a question to the writer. Another one that it has is not answered any more: whoever
// asked it has given up.
func (w *writer) ask(c *count) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.count = c
	w.ring()
}

// answer answers a part of a question, and sees to it that the rest is, too.
func (w *writer) answer(c *count) {
	n := min(countSize, len(c.slots))
	for i, s := range c.slots[:n] {
		*c.into[i] = s.figures()
	}
	c.slots, c.into = c.slots[n:], c.into[n:]
	if len(c.slots) > 0 {
		w.ring()
		return
	}
	w.mu.Lock()
	if w.mu.count == c {
		w.mu.count = nil
	}
	w.mu.Unlock()
	close(c.done)
}

// figures are how the slot stands.
func (s *slot) figures() figures {
	if s.over {
		return figures{over: true}
	}
	f := figures{
		live: true, bytes: s.stream.bytes.Load(), standing: s.stream.cursor.Standing(),
		unsent: len(s.rest) + len(s.port.held),
	}
	if s.parked {
		f.waited = s.progress.time()
	}
	return f
}

// notice is what a stream's goroutine tells of it, while it has one. A stream without one costs
// nothing for those who may want to know: its writer is asked (see count).
type notice struct {
	live bool // static

	mu      sync.Mutex
	figures figures
}

// tell tells how far the stream is: past its initial events, or in them. It is called by the
// goroutine that has it.
func (s *Stream) tell(live bool) {
	n := s.told.Load()
	if n == nil || n.live != live {
		return
	}
	f := figures{live: live, bytes: s.bytes.Load()}
	if live {
		f.standing = s.cursor.Standing()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.figures = f
}

// now is what was told last.
func (n *notice) now() figures {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.figures
}
