package audit

import "sync"

// laterMost is how many events wait at most to be written: the ends of all watches of a large proxy that ends them at once. Each has been
// in memory for as long as its watch.
const laterMost = 1 << 17

// later writes the ends of watches, which those who send watches must not wait for.
type later struct {
	log  *Log
	bell chan struct{} // rings when there is something to write
	done chan struct{}

	mu struct {
		sync.Mutex
		entries []*Entry
		closed  bool
	}
}

func newLater(l *Log) *later {
	w := &later{log: l, bell: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// add takes an entry whose end is to be written, or drops it, which is counted.
func (w *later) add(e *Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closed || len(w.mu.entries) >= laterMost {
		w.log.metrics.failures.Inc()
		return
	}
	w.mu.entries = append(w.mu.entries, e)
	w.ring()
}

func (w *later) ring() {
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

func (w *later) run() {
	defer close(w.done)
	for range w.bell {
		w.mu.Lock()
		entries, closed := w.mu.entries, w.mu.closed
		w.mu.entries = nil
		w.mu.Unlock()
		for _, e := range entries {
			_ = e.emit(stageComplete) // that it failed is counted and logged; there is nobody to tell
		}
		if closed {
			return
		}
	}
}

// close writes what there is, and takes no more.
func (w *later) close() {
	w.mu.Lock()
	w.mu.closed = true
	w.ring()
	w.mu.Unlock()
	<-w.done
}
