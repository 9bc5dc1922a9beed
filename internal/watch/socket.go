package watch

import (
	"syscall"

	"spillway/internal/clientconn"
	"spillway/internal/rawio"
)

// socket sends to a connection. If the connection is closed meanwhile, it cannot send on another
// one that has got the same descriptor: raw keeps the descriptor until the send is over.
type socket struct {
	raw     syscall.RawConn
	watched *clientconn.Watched
	sender  *rawio.Sender // of the slot's writer
	asked   bool          // NotifyRoom was called
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
	if !s.asked {
		s.asked = true
		s.watched.NotifyRoom(room)
	}
}
