package rawio

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Supported reports that a Sender can send.
const Supported = true

// Sender sends on the sockets of one goroutine. It keeps what a send needs, so that a send
// allocates nothing. The kernel may be slow to take bytes (a full CPU, a virtual device that does
// its work in the send); so one send in sendSample is timed, and while they take long they are
// announced to the scheduler.
type Sender struct {
	bytes []byte
	n     int
	err   syscall.Errno
	send  func(fd uintptr)

	sendCount uint
	isSlow    bool
}

const (
	sendSample       = 32                    // one send of so many is timed
	slowSendDuration = 50 * time.Microsecond // from here on sends are announced to the scheduler
)

// NewSender makes a Sender.
func NewSender() *Sender {
	s := &Sender{}
	s.send = s.sendto
	return s
}

// Send sends as much of b as the socket has room for, and returns how much that is. It never waits.
func (s *Sender) Send(socket syscall.RawConn, b []byte) (int, error) {
	sent := 0
	for sent < len(b) {
		n, err := s.sendOnce(socket, b[sent:])
		sent += n
		switch err {
		case nil:
		case unix.EINTR:
		case unix.EAGAIN:
			return sent, nil
		default:
			return sent, err
		}
	}
	return sent, nil
}

func (s *Sender) sendOnce(socket syscall.RawConn, b []byte) (int, error) {
	s.bytes = b
	var began time.Time
	if s.sendCount++; s.sendCount%sendSample == 0 {
		began = time.Now()
	}
	err := socket.Control(s.send)
	s.bytes = nil
	if !began.IsZero() {
		s.isSlow = time.Since(began) > slowSendDuration
	}
	switch {
	case err != nil:
		return 0, err
	case s.err != 0:
		return 0, s.err
	}
	return s.n, nil
}

func (s *Sender) sendto(fd uintptr) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	at, size := unsafe.Pointer(&s.bytes[0]), uintptr(len(s.bytes)) // #nosec G103 -- a system call
	var n uintptr
	if s.isSlow {
		n, _, s.err = syscall.Syscall6(unix.SYS_SENDTO, fd, uintptr(at), size, flags, 0, 0)
	} else {
		n, _, s.err = syscall.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(at), size, flags, 0, 0)
	}
	s.n = int(n)
}
