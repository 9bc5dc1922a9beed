//go:build !linux

package main

import (
	"errors"
	"net"
)

// listen refuses: elsewhere a socket is for everybody until it is closed to them, which is a moment too long.
func (unixSocket) listen() (net.Listener, error) {
	return nil, errors.New("unix sockets are served on Linux only")
}
