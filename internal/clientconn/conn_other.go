//go:build !linux

package clientconn

import (
	"net"
	"syscall"
	"time"
)

// tuneTCP is for kernels whose options are known; the defaults of others do.
func tuneTCP(net.Conn) {}

// endVanished leaves vanished peers to keepalive.
func endVanished(net.Conn, time.Duration) {}

// sendSeated sends b without the seat, for where a send cannot tell that it would have to wait.
func sendSeated(c syscall.Conn, seats *CPULimiter, b []byte) (n int, waited time.Duration, err error) {
	seats.Release()
	n, err = c.(net.Conn).Write(b)
	return n, seats.Acquire(), err
}
