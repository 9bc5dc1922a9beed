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

// ReadBounded calls read, which reads what, and waits for it for readTimeout at most: then the
// error is a *HungError. Each what has one read at a time in the process, so that a file that hangs
// costs one goroutine. Calls wait for the read of another call, and fail at once if it has taken
// longer than readTimeout. They do not use its result: a result is never older than its call.
func ReadBounded[T any](what string, read func() (T, error)) (T, error) {
	timer := time.NewTimer(readTimeout)
	defer timer.Stop()
	for {
		r, isOwn := reads.begin(what)
		var value T
		var err error
		if isOwn {
			go func() {
				defer reads.end(what, r)
				value, err = read()
			}()
		} else if time.Since(r.began) >= readTimeout {
			return *new(T), &HungError{what}
		}
		select {
		case <-r.done:
		case <-timer.C:
			return *new(T), &HungError{what}
		}
		if isOwn {
			return value, err
		}
	}
}

// reads are the reads of the process that are under way.
var reads = readSet{underWay: map[string]*fileRead{}}

type readSet struct {
	mu       sync.Mutex
	underWay map[string]*fileRead // by what they read
}

// fileRead is a read under way.
type fileRead struct {
	began time.Time
	done  chan struct{} // closed at its end
}

// begin returns the read of what that is under way, or else a new one, which is the caller's own to
// run and to end.
func (s *readSet) begin(what string) (r *fileRead, isOwn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.underWay[what]; r != nil {
		return r, false
	}
	r = &fileRead{began: time.Now(), done: make(chan struct{})}
	s.underWay[what] = r
	return r, true
}

func (s *readSet) end(what string, r *fileRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.underWay, what)
	close(r.done)
}
