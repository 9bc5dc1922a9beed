package flowcontrol

import "net/netip"

// Flow is the unit of fairness: a user or, before a request is authenticated, an address. The zero
// Flow is a flow like any other: of clients that have neither, such as those on a unix socket.
type Flow struct {
	User string     // its name as upstream knows it; "": not known
	Addr netip.Addr // of the client, if its name is not known
}

// UserFlow is the flow of a user.
func UserFlow(name string) Flow { return Flow{User: name} }

// AddrFlow is the flow of an address. A host with one IPv6 address commonly has all 2^64 of the
// same /64 prefix (RFC 6177, RFC 4291 section 2.5.1), so a prefix is one flow.
func AddrFlow(addr netip.Addr) Flow {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			addr = prefix.Addr()
		}
	}
	return Flow{Addr: addr}
}
