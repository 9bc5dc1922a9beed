//go:build !linux

package listen

import (
	"errors"
	"net"
)

// listen refuses: on other systems every user could connect between bind and chmod.
func (unixSocket) listen() (net.Listener, error) {
	return nil, errors.New("unix sockets are served on Linux only")
}
