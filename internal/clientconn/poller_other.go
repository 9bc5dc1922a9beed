//go:build !linux

package clientconn

import (
	"net"
	"syscall"

	"go.uber.org/zap"
)

// Poller reports events of connections on systems with epoll. Here it reports none: a request is
// cancelled when its answer cannot be written.
type Poller struct{}

// Watched is a connection of a poller. Here there are none.
type Watched struct{}

// NewPoller returns nil, which watches nothing.
func NewPoller(*zap.Logger) *Poller { return nil }

func (*Poller) Watch(net.Conn, func()) *Watched { return nil }

func (*Poller) Attend(syscall.RawConn, func(), func()) *Watched { return nil }

// Left returns false: nothing is attended.
func (*Watched) Left() bool { return false }

func (*Watched) Socket() syscall.RawConn { return nil }

func (*Watched) NotifyRoom(func()) {}

func (*Watched) Stop() {}

func (*Poller) Close() {}
