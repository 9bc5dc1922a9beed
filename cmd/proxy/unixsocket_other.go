//go:build !linux

package main

import (
	"errors"
	"syscall"
)

// bindPrivate refuses: elsewhere a socket is for everybody until it is closed to them, which is a moment too long.
func bindPrivate(_, _ string, _ syscall.RawConn) error {
	return errors.New("unix sockets are served on Linux only")
}
