package rawio

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrWouldBlock says that nothing has come yet.
var ErrWouldBlock error = unix.EAGAIN

// Receiver receives from the sockets of one goroutine at a time. It keeps what a receive needs, so
// that a receive allocates nothing.
type Receiver struct {
	bytes   []byte
	n       int
	err     error
	receive func(fd uintptr)
}

// NewReceiver makes a Receiver.
func NewReceiver() *Receiver {
	r := &Receiver{}
	r.receive = func(fd uintptr) { r.n, r.err = retryInterrupted(receive, fd, r.bytes) }
	return r
}

// Receive receives what has come, as far as b has room for it: io.EOF at the end, ErrWouldBlock if
// there is nothing. It never waits.
func (r *Receiver) Receive(socket syscall.RawConn, b []byte) (int, error) {
	r.bytes = b
	err := socket.Control(r.receive)
	r.bytes = nil
	switch {
	case err != nil:
		return 0, err
	case errors.Is(r.err, unix.EAGAIN):
		return 0, ErrWouldBlock
	case r.err != nil:
		return 0, r.err
	case r.n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return r.n, nil
}
