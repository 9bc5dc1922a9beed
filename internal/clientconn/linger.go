package clientconn

import (
	"errors"
	"io"
	"net"
	"time"
)

const (
	// LingerTimeout is how long a client that still sends may take to read its answer (net/http's).
	LingerTimeout = 500 * time.Millisecond
	// lingerBytesLimit is how much of what such a client sends is read. The rest waits in its own
	// socket.
	lingerBytesLimit = 1 << 20
)

// HalfCloser ends the direction from here to the other end, and goes on reading.
type HalfCloser interface{ CloseWrite() error }

var errNotHalfCloser = errors.New("the connection has no end of one direction")

// CloseWrite implements HalfCloser.
func (c *PacedConn) CloseWrite() error {
	if half, ok := c.Conn.(HalfCloser); ok {
		return half.CloseWrite()
	}
	return errNotHalfCloser
}

// Linger closes a connection whose answer is sent and whose client may still be sending. A
// connection that is closed while it has unread bytes is reset, and the answer lost (RFC 9112,
// section 9.6). in reads the connection, with what was read of it ahead. The connection is open for
// at most LingerTimeout, in which others may take its place.
func Linger(c net.Conn, in io.Reader) {
	defer c.Close()
	if p := PacedConnOf(c); p != nil {
		p.SetState(StateNew)
		p.StopPacing() // which would move the deadline
	}
	until := time.Now().Add(LingerTimeout)
	if c.SetDeadline(until) != nil {
		return
	}
	if half, ok := c.(HalfCloser); !ok || half.CloseWrite() != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, in, lingerBytesLimit); err == nil {
		<-time.After(time.Until(until))
	}
}
