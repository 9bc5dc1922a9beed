// Package fairness shares scarce resources among requests: seats for requests that pass through,
// bytes of large answers, watches. It knows nothing of HTTP: a flow is what shares are counted for,
// a width is how much one request takes.
//
// Invariants: what is held never exceeds the limit, and no flow holds more than its share, unless a reserve for others
// remains free (Options.Reserve). No request is admitted before one that waits and whose flow holds less. Waiting is
// bounded in time and in number, for each flow and for all together; a request that cannot wait is refused at once.
// Memory is bounded by what is held and by how many may wait, however many flows there are.
//
// It is written after kube-apiserver's API Priority and Fairness (KEP-1040) and not made of it. Its queueset brings the registry of
// metrics and the request types of k8s.io/apiserver: 4 MB and 147 packages more in the binary, for a queue. And where it hashes flows
// into a fixed number of queues (shuffle sharding), so that a flow may meet an elephant in all of its queues, here each flow that
// waits has a queue of its own, since those that wait are bounded by themselves.
package fairness

import "net/netip"

// Flow is whom a share is counted for: a user, or, as long as nobody has said who it is, an address. The zero Flow is a flow like any
// other: of clients that have neither, such as those on a unix socket.
type Flow struct {
	User string     // its name as upstream knows it; "": not known
	Addr netip.Addr // of the client, if its name is not known
}

// UserFlow is the flow of a user.
func UserFlow(name string) Flow { return Flow{User: name} }

// AddrFlow is the flow of an address. Who has one IPv6 address commonly has the 2^64 that begin with the same 64 bits (RFC 6177,
// RFC 4291 section 2.5.1), so these are one flow.
func AddrFlow(addr netip.Addr) Flow {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			addr = prefix.Addr()
		}
	}
	return Flow{Addr: addr}
}
