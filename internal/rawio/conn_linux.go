package rawio

import (
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// TCPConn is a TCP connection whose reads and writes are not announced to Go's scheduler. It waits
// in Go's poller, with deadlines and Close as of any net.TCPConn.
type TCPConn struct {
	*net.TCPConn
	raw syscall.RawConn
}

// NewConn makes a TCPConn of a TCP connection. It returns any other connection as it is.
func NewConn(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	return &TCPConn{TCPConn: tcp, raw: raw}
}

// Read implements net.Conn.
func (c *TCPConn) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return c.TCPConn.Read(b)
	}
	var failed error
	err = c.raw.Read(func(fd uintptr) bool {
		n, failed = retryInterrupted(receive, fd, b)
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
func (c *TCPConn) Write(b []byte) (n int, err error) {
	if len(b) == 0 {
		return c.TCPConn.Write(b)
	}
	var failed error
	err = c.raw.Write(func(fd uintptr) bool {
		for n < len(b) {
			var sent int
			if sent, failed = retryInterrupted(transmit, fd, b[n:]); failed != nil {
				return failed != unix.EAGAIN
			}
			n += sent
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

// error is a failure as package net reports it.
func (c *TCPConn) error(op string, err error) error {
	return &net.OpError{
		Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, err),
	}
}

// retryInterrupted makes a system call until no signal interrupts it.
func retryInterrupted(call func(fd uintptr, b []byte) (int, error), fd uintptr, b []byte) (int, error) {
	for {
		if n, err := call(fd, b); err != unix.EINTR {
			return max(n, 0), err
		}
	}
}
