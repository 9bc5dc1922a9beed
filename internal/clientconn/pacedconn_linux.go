package clientconn

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tuneTCP prepares an accepted connection for long streams. A kernel that does not know the option
// refuses it, and the connection works without it.
func tuneTCP(c net.Conn) {
	setTCP(c, unix.TCP_NOTSENT_LOWAT, unsentBytesLimit)
}

// endVanished makes the kernel end the connection when its peer has acknowledged nothing, or kept
// its window shut, for so long: a host that vanished sends no FIN. 0 leaves that to keepalive, as
// for clients that may pause as long as they like.
func endVanished(c net.Conn, after time.Duration) {
	setTCP(c, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
}

func setTCP(c net.Conn, option, value int) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, value) })
}

// writeReleasing writes b, and releases the CPU permit only while there is no room: sending is
// work. waited is how long it took to acquire the permit again. For a connection that is no socket
// it releases the permit for the whole write.
func writeReleasing(c net.Conn, cpu *CPULimiter, wait *ClientWait, b []byte) (n int, waited time.Duration, err error) {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return writeWithoutPermit(c, cpu, wait, b)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var failed error
	released := false
	err = raw.Write(func(fd uintptr) bool {
		if released {
			wait.end() // there is room
			waited, released = waited+cpu.Acquire(), false
		}
		for n < len(b) {
			taken, err := unix.Write(int(fd), b[n:])
			switch {
			case err == nil:
				n += taken
				wait.end()
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				wait.begin(len(b) - n)
				cpu.Release()
				released = true
				return false
			default:
				failed = os.NewSyscallError("write", err)
				return true
			}
		}
		return true
	})
	if released {
		waited += cpu.Acquire()
	}
	if err == nil {
		err = failed
	}
	return n, waited, err
}
