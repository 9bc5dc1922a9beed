package clientconn

import "net"

// StrictTransportSecurityHeader is a header that keeps browsers from plain HTTP (RFC 6797). As in
// kube-apiserver it is in every answer that does not have one already, if there are directives for
// it; and in none over a connection without TLS, where it must not be (section 7.2).
const StrictTransportSecurityHeader = "Strict-Transport-Security"

// StrictTransportSecurity is what the answers on a connection say in that header; "" if nothing.
func StrictTransportSecurity(c net.Conn) string {
	if p := PacedConnOf(c); p != nil && p.strict != nil {
		return *p.strict
	}
	return ""
}
