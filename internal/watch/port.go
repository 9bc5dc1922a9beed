package watch

import (
	"bytes"
	"syscall"

	"spillway/internal/clientconn"
	"spillway/internal/rawio"
)

// nonblockingSender sends to a socket as much as fits, and never waits.
type nonblockingSender interface {
	// offer returns how many bytes of b were taken. If not all, park says when to try again.
	offer(b []byte) (int, error)
	// park lets room be called once there is room again. room must not block.
	park(room func())
}

// port is where a slot sends: a socket, under TLS where there is TLS. Only its writer uses it.
//
// A TLS record is made for one connection and must go out as it is, so what did not fit is held
// here: a turn of them at most, and none while the client keeps up.
type port struct {
	out    nonblockingSender
	secure *securePort // nil: no TLS, or not its own
}

// securePort is the TLS of a port.
type securePort struct {
	clientconn.RecordWriter
	sealed *clientconn.SealedRecords // the writer's buffer: those of this turn
	unsent clientconn.SealedRecords  // those that the socket had no room for
}

// send takes what it can of b: less than all of it, or with something held, if the socket is full.
// moved says that bytes went out.
func (p *port) send(b []byte) (taken int, moved bool, err error) {
	s := p.secure
	if s == nil {
		taken, err = p.out.offer(b)
		return taken, taken > 0, err
	}
	if len(s.unsent) > 0 {
		n, err := p.out.offer(s.unsent)
		if s.unsent = s.unsent[n:]; err != nil || len(s.unsent) > 0 {
			return 0, n > 0, err
		}
		s.unsent, moved = nil, true
	}
	if len(b) == 0 {
		return 0, moved, nil
	}
	if err := s.Seal(s.sealed, b); err != nil {
		return 0, moved, err
	}
	n, err := p.out.offer(*s.sealed)
	if n < len(*s.sealed) {
		s.unsent = bytes.Clone((*s.sealed)[n:])
	}
	return len(b), moved || n > 0, err
}

// heldBytes is how many bytes were made for the socket that it has not taken.
func (p *port) heldBytes() int {
	if p.secure == nil {
		return 0
	}
	return len(p.secure.unsent)
}

// socket sends to a connection. If the connection is closed meanwhile, it cannot send on another
// one that has got the same descriptor: raw keeps the descriptor until the send is over.
type socket struct {
	raw       syscall.RawConn
	watched   *clientconn.WatchedConn
	sender    *rawio.Sender // of the slot's writer
	notifying bool          // NotifyRoom was called
}

// openSocket makes the socket of a connection, nil if its socket is not watched.
func openSocket(c *ConnSink, s *rawio.Sender) nonblockingSender {
	if c.Watched == nil {
		return nil
	}
	return &socket{raw: c.Watched.Socket(), watched: c.Watched, sender: s}
}

// offer implements nonblockingSender.
func (s *socket) offer(b []byte) (int, error) { return s.sender.Send(s.raw, b) }

// park implements nonblockingSender. The kernel reports room only after a send that found none:
// after a partial send it reports nothing.
func (s *socket) park(room func()) {
	if !s.notifying {
		s.notifying = true
		s.watched.NotifyRoom(room)
	}
}
