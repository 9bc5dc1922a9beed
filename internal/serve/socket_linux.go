package serve

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// WritersSupported says that a few writers can serve all watches here.
const WritersSupported = true

// socket is the outlet of a connection. Whoever closes the connection meanwhile cannot make it send to another one that has got the
// same descriptor: raw keeps the descriptor until the send is over.
type socket struct {
	raw     syscall.RawConn
	watched *watched
	sender  *sender
	asked   bool // to be told of room
}

// sender makes the sends of one writer.
//
// A send that finds room lasts a few microseconds, less than it costs to tell Go's scheduler of it and to be welcomed back (a quarter of
// the whole); so it is told only where sends are found to take long.
type sender struct {
	bytes []byte
	n     int
	err   syscall.Errno
	send  func(fd uintptr)

	count uint
	slow  bool
}

const (
	sendSample = 32                    // of so many sends one is measured
	sendSlow   = 50 * time.Microsecond // from here on the scheduler is told
)

func newSender() *sender {
	s := &sender{}
	s.send = s.sendto
	return s
}

// openSocket makes an outlet of a connection, nil if its socket is not watched.
func openSocket(c *connSink, s *sender) outlet {
	if c.watched == nil {
		return nil
	}
	return &socket{raw: c.watched.conn, watched: c.watched, sender: s}
}

// offer implements outlet.
func (s *socket) offer(b []byte) (int, error) {
	taken := 0
	for taken < len(b) {
		n, err := s.sender.offer(s.raw, b[taken:])
		taken += n
		switch err {
		case nil:
		case unix.EINTR:
		case unix.EAGAIN:
			return taken, nil
		default:
			return taken, err
		}
	}
	return taken, nil
}

// park implements outlet. A partial send is not enough to be told: only after one that found no room at all the kernel remembers.
func (s *socket) park(room func()) {
	if !s.asked {
		s.asked = true
		s.watched.wake(room)
	}
}

func (s *sender) offer(raw syscall.RawConn, b []byte) (int, error) {
	s.bytes = b
	var began time.Time
	if s.count++; s.count%sendSample == 0 {
		began = time.Now()
	}
	err := raw.Control(s.send)
	s.bytes = nil
	if !began.IsZero() {
		s.slow = time.Since(began) > sendSlow
	}
	switch {
	case err != nil:
		return 0, err
	case s.err != 0:
		return 0, s.err
	}
	return s.n, nil
}

func (s *sender) sendto(fd uintptr) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	var n uintptr
	if s.slow {
		n, _, s.err = syscall.Syscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&s.bytes[0])), uintptr(len(s.bytes)), flags, 0, 0) // #nosec G103 -- a system call
	} else {
		n, _, s.err = syscall.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&s.bytes[0])), uintptr(len(s.bytes)), flags, 0, 0) // #nosec G103 -- a system call
	}
	s.n = int(n)
}
