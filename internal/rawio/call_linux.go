//go:build !race

package rawio

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// receive and transmit are recv(2) and send(2) without an announcement to Go's scheduler. They
// never block.

func receive(fd uintptr, b []byte) (int, error) { return rawSyscall(unix.SYS_RECVFROM, fd, b) }

func transmit(fd uintptr, b []byte) (int, error) { return rawSyscall(unix.SYS_SENDTO, fd, b) }

func rawSyscall(call, fd uintptr, b []byte) (int, error) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	at := unsafe.Pointer(&b[0]) // #nosec G103 -- a system call
	n, _, errno := syscall.RawSyscall6(call, fd, uintptr(at), uintptr(len(b)), flags, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil // #nosec G115 -- len(b) at most
}
