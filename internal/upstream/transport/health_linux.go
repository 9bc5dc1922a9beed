package transport

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// limitUnacknowledged limits how long a connection waits for the other end to acknowledge what was
// sent. Keepalive alone does not: while bytes are on their way, no probes are sent.
func limitUnacknowledged(_, _ string, c syscall.RawConn) (err error) {
	controlled := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
			int(unacknowledged.Milliseconds())) // #nosec G115 -- a descriptor
	})
	if controlled != nil {
		return controlled
	}
	return err
}
