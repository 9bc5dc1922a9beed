//go:build !linux

package fakeapiserver

import (
	"cmp"
	"net"
)

// held is a port of 127.0.0.1 that another process may get while none listens there.
type held struct{ address string }

func hold() (*held, error) { return &held{}, nil }

// listen listens at the port, the first time at any.
func (h *held) listen() (net.Listener, error) {
	l, err := net.Listen("tcp4", cmp.Or(h.address, "127.0.0.1:0"))
	if err == nil {
		h.address = l.Addr().String()
	}
	return l, err
}

func (h *held) release() {}
