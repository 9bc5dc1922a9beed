//go:build !race

package transport

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// receive and transmit are recv(2) and send(2), of which Go's scheduler is not told.

func receive(fd uintptr, b []byte) (int, error) { return unannounced(unix.SYS_RECVFROM, fd, b) }

func transmit(fd uintptr, b []byte) (int, error) { return unannounced(unix.SYS_SENDTO, fd, b) }

func unannounced(call, fd uintptr, b []byte) (int, error) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	n, _, errno := syscall.RawSyscall6(call, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), flags, 0, 0) // #nosec G103 -- a system call
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil // #nosec G115 -- len(b) at most
}
