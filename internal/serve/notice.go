package serve

import "sync"

// notice is what a stream's goroutine tells of it, while it has one. A stream without one costs nothing for those who may want to know: its
// writer is asked (see count).
type notice struct {
	live bool // static

	mu      sync.Mutex
	figures figures
}

// tell tells how far the stream is: past its initial events, or in them. It is called by the goroutine that has it.
func (s *stream) tell(live bool) {
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
