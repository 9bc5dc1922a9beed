package serve

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// notSentLow bounds what a stalled client pins in the kernel to about this many bytes, without capping the window on
	// long paths as a small send buffer would (design D10a).
	notSentLow = 64 << 10
	// userTimeout ends a connection whose peer acknowledges nothing: a host that vanished sends no FIN.
	userTimeout = 30 * time.Second
)

// tune prepares an accepted connection for long streams. What a kernel does not know it refuses, and the connection works
// without it.
func tune(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSentLow)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
}
