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

// PollHandle is a connection of a poller. Here there are none.
type PollHandle struct{}

// NewPoller returns nil, which watches nothing.
func NewPoller(*zap.Logger) *Poller { return nil }

func (*Poller) Watch(net.Conn, func()) *PollHandle { return nil }

func (*Poller) AttendConn(syscall.RawConn, func(), func()) *PollHandle { return nil }

// HasLeft returns false: nothing is attended.
func (*PollHandle) HasLeft() bool { return false }

func (*PollHandle) Socket() syscall.RawConn { return nil }

func (*PollHandle) NotifyRoom(func()) {}

func (*PollHandle) Stop() {}

func (*Poller) Close() {}
