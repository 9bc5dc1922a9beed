package serve

import (
	"net"
	"net/netip"
	"time"
)

// arrivals are how long a client may take for what it sends, in all and however it is cut into pieces.
type arrivals struct {
	head  time.Duration // a TLS handshake, and then a request's head
	owned time.Duration // a body that is small enough to be read before it is sent on
	// passed is for a larger body of a request that has one answer. What lasts (exec, a proxied upload) may take as long as it likes.
	passed time.Duration
}

// usualArrivals are kube-apiserver's times: 32 s for a head, and its --request-timeout of 60 s for a request; what passes through has a little
// more, so that upstream says in its own words that this took too long.
var usualArrivals = arrivals{head: 32 * time.Second, owned: time.Minute, passed: 75 * time.Second}

// addressOf is the IP address of a connection's other end; none for a unix socket.
func addressOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr()
	}
	return netip.Addr{}
}
