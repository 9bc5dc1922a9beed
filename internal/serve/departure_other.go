//go:build !linux

package serve

import (
	"net"

	"go.uber.org/zap"
)

// departures tells when clients leave, on platforms that have epoll. Here nobody tells: a request is cancelled when its
// answer cannot be written.
type departures struct{}

func newDepartures(*zap.Logger) *departures { return nil }

func (*departures) watch(net.Conn, func()) (stop func()) { return func() {} }

func (*departures) close() {}
