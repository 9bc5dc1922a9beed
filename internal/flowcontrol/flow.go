package flowcontrol

import "net/netip"

// Flow is whom a share is counted for: a user, or, as long as nobody has said who it is, an
// address. The zero Flow is a flow like any other: of clients that have neither, such as those on a
// unix socket.
type Flow struct {
	User string     // its name as upstream knows it; "": not known
	Addr netip.Addr // of the client, if its name is not known
}

// UserFlow is the flow of a user.
func UserFlow(name string) Flow { return Flow{User: name} }

// AddrFlow is the flow of an address. Who has one IPv6 address commonly has the 2^64 that begin
// with the same 64 bits (RFC 6177, RFC 4291 section 2.5.1), so these are one flow.
func AddrFlow(addr netip.Addr) Flow {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			addr = prefix.Addr()
		}
	}
	return Flow{Addr: addr}
}
