//go:build !linux

package serve

import (
	"net"
	"syscall"
	"time"
)

// tune is for kernels whose options are known; the defaults of others do.
func tune(net.Conn) {}

// endVanished leaves vanished peers to keepalive.
func endVanished(net.Conn, time.Duration) {}

// sendInTurn sends b without the turn, for where a send cannot tell that it would have to wait.
func sendInTurn(c syscall.Conn, turns *turns, b []byte) (n int, waited time.Duration, err error) {
	turns.give()
	n, err = c.(net.Conn).Write(b)
	return n, turns.take(), err
}
