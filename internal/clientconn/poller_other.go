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

// WatchedConn is a connection of which a Poller reports events. Here there are none.
type WatchedConn struct{}

// AttendedConn is a connection of which a Poller reports more events. Here there are none.
type AttendedConn struct{}

// NewPoller returns nil, which watches nothing.
func NewPoller(*zap.Logger) *Poller { return nil }

func (*Poller) Watch(net.Conn, func()) *WatchedConn { return nil }

func (*WatchedConn) Socket() syscall.RawConn { return nil }

func (*WatchedConn) NotifyRoom(func()) {}

func (*WatchedConn) Stop() {}

func (*Poller) AttendConn(syscall.RawConn, func(), func()) *AttendedConn { return nil }

// HasLeft returns false: nothing is attended.
func (*AttendedConn) HasLeft() bool { return false }

func (*AttendedConn) Stop() {}

func (*Poller) Close() {}
