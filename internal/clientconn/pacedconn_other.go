//go:build !linux

package clientconn

import (
	"net"
	"syscall"
	"time"
)

// tuneTCP leaves a connection as it is: the options are Linux's.
func tuneTCP(net.Conn) {}

// endVanished leaves vanished peers to keepalive.
func endVanished(net.Conn, time.Duration) {}

// writeReleasing writes b without the CPU permit: a send here cannot tell that it would have to
// wait.
func writeReleasing(c syscall.Conn, cpu *CPULimiter, b []byte) (n int, waited time.Duration, err error) {
	cpu.Release()
	n, err = c.(net.Conn).Write(b)
	return n, cpu.Acquire(), err
}
