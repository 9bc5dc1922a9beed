//go:build !linux

package clientconn

import (
	"net"
	"time"
)

// tuneTCP sets no option: only Linux is tuned.
func tuneTCP(net.Conn) {}

// endVanished leaves vanished peers to keepalive. The period is ignored.
func endVanished(net.Conn, time.Duration) {}

// writeReleasing releases the CPU permit for the whole write: the non-blocking loop is written for
// Linux only. waited is how long it took to acquire the permit again.
func writeReleasing(c net.Conn, cpu *CPULimiter, wait *ClientWait, b []byte) (n int, waited time.Duration, err error) {
	return writeWithoutPermit(c, cpu, wait, b)
}
