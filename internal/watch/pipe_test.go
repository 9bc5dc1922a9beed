package watch

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// narrow is the sending end of a connection for bubbles, in which a real socket's time does not
// pass. Like net.Pipe it holds nothing: it takes what a Read is waiting for. Unlike net.Pipe it can
// also be offered bytes, as a socket can.
type narrow struct {
	net.Conn // the end of a pipe that carries nothing, for the methods that do not matter

	mu       sync.Mutex
	reader   []byte        // of the Read that waits; nil: none
	taken    chan int      // to that Read
	arrived  chan struct{} // closed when a Read arrives or the connection ends
	room     func()
	closed   chan struct{}
	deadline time.Time
}

// wide is the other end: it reads.
type wide struct {
	net.Conn
	from *narrow
}

func narrowPipe() (*narrow, *wide) {
	near, far := net.Pipe()
	n := &narrow{Conn: near, taken: make(chan int), arrived: make(chan struct{}), closed: make(chan struct{})}
	return n, &wide{Conn: far, from: n}
}

func (w *wide) Read(b []byte) (int, error) {
	n := w.from
	n.mu.Lock()
	n.reader = b
	n.happened()
	room := n.room
	n.mu.Unlock()
	if room != nil {
		room()
	}
	select {
	case got := <-n.taken:
		return got, nil
	case <-n.closed:
		return 0, io.EOF
	}
}

func (w *wide) Close() error { return w.from.Close() }

func (n *narrow) happened() {
	close(n.arrived)
	n.arrived = make(chan struct{})
}

func (n *narrow) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.closed:
	default:
		close(n.closed)
		n.happened()
		_ = n.Conn.Close()
	}
	return nil
}

// offer implements nonblockingSender.
func (n *narrow) offer(b []byte) (int, error) {
	taken, _, err := n.give(b)
	return taken, err
}

// give takes what a reader is waiting for, and tells when one arrives.
func (n *narrow) give(b []byte) (taken int, arrived <-chan struct{}, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.closed:
		return 0, nil, io.ErrClosedPipe
	default:
	}
	if n.reader == nil {
		return 0, n.arrived, nil
	}
	taken = copy(n.reader, b)
	n.reader = nil
	n.taken <- taken // the Read is waiting for it
	return taken, n.arrived, nil
}

// park implements nonblockingSender.
func (n *narrow) park(room func()) {
	n.mu.Lock()
	n.room = room
	waiting := n.reader != nil
	n.mu.Unlock()
	if waiting {
		room()
	}
}

func (n *narrow) SetWriteDeadline(t time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deadline = t
	return nil
}

func (n *narrow) Write(b []byte) (int, error) {
	n.mu.Lock()
	var late <-chan time.Time
	if !n.deadline.IsZero() {
		late = time.After(time.Until(n.deadline))
	}
	n.mu.Unlock()
	for written := 0; ; {
		taken, arrived, err := n.give(b[written:])
		if written += taken; err != nil || written == len(b) {
			return written, err
		}
		select {
		case <-arrived:
		case <-late:
			return written, os.ErrDeadlineExceeded
		}
	}
}
