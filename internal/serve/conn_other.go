//go:build !linux

package serve

import "net"

// tune is for kernels whose options are known; the defaults of others do.
func tune(net.Conn) {}
