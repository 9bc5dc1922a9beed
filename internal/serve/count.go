package serve

// count is a question to a writer: how its slots stand, or some of them. It is answered between turns, a few slots at a time, so that no
// event waits for it, and nothing is kept up to date for those who might ask.
type count struct {
	slots []*slot
	into  []*figures // for each, where the answer goes
	done  chan struct{}
}

// countSize is how many slots are counted before the next turns: some 20 µs of them.
const countSize = 128

// ask puts a question to the writer. Another one that it has is not answered any more: whoever asked it has given up.
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
	f := figures{live: true, bytes: s.stream.bytes.Load(), standing: s.stream.cursor.Standing(), unsent: len(s.rest) + len(s.port.held)}
	if s.parked {
		f.waited = s.progress.time()
	}
	return f
}
