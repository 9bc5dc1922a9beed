//go:build !linux

package serve

import (
	"net"
	"syscall"

	"go.uber.org/zap"
)

// poller tells what happens to connections, on platforms that have epoll. Here nobody tells: a request is cancelled when its
// answer cannot be written.
type poller struct{}

type watched struct{}

func newPoller(*zap.Logger) *poller { return nil }

func (*poller) watch(net.Conn, func()) *watched { return nil }

func (*watched) socket() syscall.RawConn { return nil }

func (*watched) wake(func()) {}

func (*watched) stop() {}

func (*poller) close() {}
