package h2

import (
	"errors"
	"net"
	"sync"
)

// pipeConn is the NonblockingConn of a pipe. A goroutine reads it ahead, a piece at a time, and
// another one writes what is flushed, so that nothing is sent that the client has not read.
type pipeConn struct {
	net         net.Conn
	ready, room func()
	done        sync.WaitGroup

	mu      sync.Mutex
	wake    sync.Cond // come is empty, or closed is set
	closed  bool
	come    []byte
	failed  error // of a read, after come
	unsent  []byte
	writing bool
	err     error // of a write
}

// noDataError is a pipeConn's error for nothing to read.
type noDataError struct{}

func (noDataError) Error() string    { return "nothing to read yet" }
func (noDataError) WouldBlock() bool { return true }

func (s *pipeConn) Open(ready, room func()) error {
	s.ready, s.room = ready, room
	s.done.Go(func() {
		piece := make([]byte, 1000)
		for {
			n, err := s.net.Read(piece)
			s.mu.Lock()
			s.come, s.failed = append(s.come, piece[:n]...), err
			s.mu.Unlock()
			s.ready()
			if err != nil || !s.taken() {
				return
			}
		}
	})
	return nil
}

// taken waits until what has come is read, and reports whether more may come.
func (s *pipeConn) taken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.come) > 0 && !s.closed {
		s.wake.Wait()
	}
	return !s.closed
}

func (s *pipeConn) ReadAgain() {}

func (s *pipeConn) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.come) > 0:
		n := copy(b, s.come)
		if s.come = s.come[n:]; len(s.come) == 0 {
			s.come = nil
			s.wake.Signal()
		}
		return n, nil
	case s.failed != nil:
		return 0, s.failed
	}
	return 0, noDataError{}
}

func (s *pipeConn) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing {
		return 0, errors.New("a write before the one before was flushed")
	}
	s.unsent = append(s.unsent, b...)
	return len(b), nil
}

func (s *pipeConn) Flush() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || len(s.unsent) == 0 {
		return s.err == nil, s.err
	}
	s.writing = true
	s.done.Go(func() {
		_, err := s.net.Write(s.unsent)
		s.mu.Lock()
		s.unsent, s.err, s.writing = s.unsent[:0], err, false
		s.mu.Unlock()
		s.room()
	})
	return false, nil
}

func (s *pipeConn) HasPending() bool { return false }

func (s *pipeConn) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wake.Broadcast()
}

// nonblocking has connections of tests served without goroutines of their own.
var nonblocking bool

// newConn makes a connection of one, of the kind that is tested at present.
func newConn(c net.Conn, opts Options) *Conn {
	if nonblocking {
		s := &pipeConn{net: c}
		s.wake.L = &s.mu
		opts.Nonblocking = s
	}
	return New(c, opts)
}

// serve serves a connection until its end, whatever serves it.
func serve(c net.Conn, opts Options) {
	ended := make(chan struct{})
	opts.Ended = func() { close(ended) }
	newConn(c, opts).Serve()
	<-ended
}

// offer has an event sent.
func offer(s *Stream, b []byte) (int, error) {
	defer s.Conn().Flush()
	return s.Offer(b)
}
