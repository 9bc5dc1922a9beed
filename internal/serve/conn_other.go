//go:build !linux

package serve

import (
	"net"
	"time"
)

// tune is for kernels whose options are known; the defaults of others do.
func tune(net.Conn) {}

// endVanished leaves vanished peers to keepalive.
func endVanished(net.Conn, time.Duration) {}
