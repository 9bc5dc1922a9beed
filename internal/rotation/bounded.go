package rotation

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// readTimeout is how long reading a file may take. A file system that hangs, such as a network's
// whose server is gone, blocks a reader, and no context ends that.
const readTimeout = 3 * time.Second

// HungError says that something could not be read within readTimeout.
type HungError struct{ What string }

// Error implements error.
func (e *HungError) Error() string {
	return fmt.Sprintf("%s: not read within %s; its file system does not answer", e.What, readTimeout)
}

// Timeout says to callers that the same may work later.
func (*HungError) Timeout() bool { return true }

// ReadFile is os.ReadFile, bounded as ReadBounded is.
func ReadFile(name string) ([]byte, error) {
	return ReadBounded(name, func() ([]byte, error) { return os.ReadFile(name) }) // #nosec G304 -- the operator names it
}

// ReadBounded calls read, which reads what, for readTimeout at most: then the error is a
// *HungError. Each what has one read at a time in the process, so that a file that hangs costs one
// goroutine; and while it has taken longer than readTimeout, other calls fail at once. read begins
// after ReadBounded was called, so that nothing is returned that was read earlier.
func ReadBounded[T any](what string, read func() (T, error)) (T, error) {
	timer := time.NewTimer(readTimeout)
	defer timer.Stop()
	for {
		under, own := reads.begin(what)
		if own {
			go func() {
				defer reads.end(what, under)
				under.value, under.err = read()
			}()
		} else if time.Since(under.began) >= readTimeout {
			return *new(T), &HungError{what}
		}
		select {
		case <-under.done:
		case <-timer.C:
			return *new(T), &HungError{what}
		}
		if own {
			value, _ := under.value.(T)
			return value, under.err
		}
	}
}

// reads are the reads of the process that are under way.
var reads = readSet{of: map[string]*reading{}}

type readSet struct {
	mu sync.Mutex
	of map[string]*reading
}

// reading is one read. value and err are set once done is closed.
type reading struct {
	began time.Time
	done  chan struct{}
	value any
	err   error
}

// begin returns the read of what that is under way, or else a new one, which is the caller's to
// run.
func (s *readSet) begin(what string) (r *reading, own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.of[what]; r != nil {
		return r, false
	}
	r = &reading{began: time.Now(), done: make(chan struct{})}
	s.of[what] = r
	return r, true
}

func (s *readSet) end(what string, r *reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, what)
	close(r.done)
}
