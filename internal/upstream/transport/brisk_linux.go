package transport

import (
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// brisk is a TCP connection of which Go's scheduler is not told while it reads and writes: neither waits, since its socket does not block, and
// what they take is microseconds.
//
// The telling costs little. But in a process that was idle it wakes the runtime's monitor, which then looks fifty times, every 20 to 70 µs,
// whether a thread has been in a system call for too long (go.dev/issue/18236). A mirror is idle between any two events, and so each of
// them cost 0.8 ms besides its deliveries.
type brisk struct {
	*net.TCPConn
	raw syscall.RawConn
}

// newBrisk makes a connection a brisk one, if it is one of TCP.
func newBrisk(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	return &brisk{TCPConn: tcp, raw: raw}
}

// Read implements net.Conn.
func (c *brisk) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return c.TCPConn.Read(b)
	}
	var failed error
	err = c.raw.Read(func(fd uintptr) bool {
		n, failed = unbroken(receive, fd, b)
		return failed != unix.EAGAIN
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, c.error("read", failed)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn.
func (c *brisk) Write(b []byte) (n int, err error) {
	if len(b) == 0 {
		return c.TCPConn.Write(b)
	}
	var failed error
	err = c.raw.Write(func(fd uintptr) bool {
		for n < len(b) {
			var taken int
			if taken, failed = unbroken(transmit, fd, b[n:]); failed != nil {
				return failed != unix.EAGAIN
			}
			n += taken
		}
		return true
	})
	switch {
	case err != nil:
		return n, err
	case failed != nil:
		return n, c.error("write", failed)
	}
	return n, nil
}

// error is a failure as net tells of it.
func (c *brisk) error(op string, err error) error {
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}

// unbroken makes a system call until no signal interrupts it.
func unbroken(call func(fd uintptr, b []byte) (int, error), fd uintptr, b []byte) (int, error) {
	for {
		if n, err := call(fd, b); err != unix.EINTR {
			return max(n, 0), err
		}
	}
}
