package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// bindPrivate makes the file of a socket private from its first moment: Linux gives it the permissions that the socket has when it is
// bound. The umask would do it, too, but for every file that any thread makes meanwhile.
func bindPrivate(_, _ string, raw syscall.RawConn) error {
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), uint32(privateMode)) }); err != nil {
		return err
	}
	return failed
}
