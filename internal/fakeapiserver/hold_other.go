//go:build !linux

package fakeapiserver

import (
	"cmp"
	"net"
)

// heldPort is a port of 127.0.0.1 that another process may get while none listens there.
type heldPort struct{ address string }

func hold() (*heldPort, error) { return &heldPort{}, nil }

// listen listens at the port, the first time at any.
func (h *heldPort) listen() (net.Listener, error) {
	l, err := net.Listen("tcp4", cmp.Or(h.address, "127.0.0.1:0"))
	if err == nil {
		h.address = l.Addr().String()
	}
	return l, err
}

func (h *heldPort) release() {}
