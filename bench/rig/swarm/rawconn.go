package swarm

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"golang.org/x/sys/unix"

	"spillway/bench/rig/wire"
)

// rawConn is a TCP connection of which we own the file descriptor. It blocks until it is polled;
// from then on Read fails with errAgain where it would block, which crypto/tls takes for a timeout,
// to be tried again. It implements net.Conn as far as crypto/tls needs it.
type rawConn struct {
	fd int

	// Owned by the poller, once there is one.
	polled  bool
	buffer  []byte // shared by all socks of a poller, so it is empty whenever one of them says errAgain
	pending []byte // what was read into buffer and not taken
	dry     bool   // the last read took all there was
}

// errAgain says that there is nothing to read at present.
var errAgain net.Error = wouldBlockError{}

type wouldBlockError struct{}

func (wouldBlockError) Error() string   { return "nothing to read" }
func (wouldBlockError) Timeout() bool   { return true }
func (wouldBlockError) Temporary() bool { return true }

// dialPatience bounds each step until a watch is answered.
const dialPatience = 60 * time.Second

func dial(address string, by *wire.Wire) (*rawConn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	tcp, err := net.ResolveTCPAddr("tcp4", u.Host)
	if err != nil {
		return nil, err
	}
	fd := -1
	err = by.Enter(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	s := &rawConn{fd: fd}
	patience := unix.NsecToTimeval(dialPatience.Nanoseconds())
	to := &unix.SockaddrInet4{Port: tcp.Port, Addr: [4]byte(tcp.IP.To4())}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		_ = s.Close()
		return nil, err
	}
	if err := unix.Connect(fd, to); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("connecting to %s: %w", u.Host, err)
	}
	return s, nil
}

// Read implements io.Reader.
func (s *rawConn) Read(b []byte) (int, error) {
	if !s.polled {
		return s.read(b)
	}
	if len(s.pending) == 0 {
		if s.dry {
			s.dry = false
			return 0, errAgain
		}
		n, err := s.read(s.buffer)
		if err != nil {
			return 0, err
		}
		s.pending, s.dry = s.buffer[:n], n < len(s.buffer)
	}
	n := copy(b, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

func (s *rawConn) read(b []byte) (int, error) {
	for {
		n, err := unix.Read(s.fd, b)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN && s.polled:
			return 0, errAgain
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Write implements io.Writer. Only requests are written, before the poller comes.
func (s *rawConn) Write(b []byte) (int, error) {
	for written := 0; ; {
		n, err := unix.Write(s.fd, b[written:])
		if err != nil && err != unix.EINTR {
			return written, err
		}
		if written += max(n, 0); written == len(b) {
			return written, nil
		}
	}
}

// Close implements io.Closer.
func (s *rawConn) Close() error { return unix.Close(s.fd) }

func (s *rawConn) LocalAddr() net.Addr                { return &net.TCPAddr{} }
func (s *rawConn) RemoteAddr() net.Addr               { return &net.TCPAddr{} }
func (s *rawConn) SetDeadline(t time.Time) error      { return nil }
func (s *rawConn) SetReadDeadline(t time.Time) error  { return nil }
func (s *rawConn) SetWriteDeadline(t time.Time) error { return nil }
