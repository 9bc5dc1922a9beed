package passthrough

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
)

// PlainGuard decides which requests a listener without TLS admits, on TCP and on unix sockets
// alike, answers from memory included. Loopback is not an identity: browsers reach it by DNS
// rebinding and by cross-site requests. So a request must name a host and, if it has one, an origin
// that the operator expects. With the proxy's own rights it may not reach into workloads unless the
// operator allows that. Immutable.
type PlainGuard struct {
	hosts       []string
	origins     []string
	selfConnect bool
}

// NewPlainGuard returns a guard that admits localhost, 127.0.0.1, [::1] (with any port) and
// acceptHosts: an entry without a port stands for every port. acceptOrigins are compared whole
// (scheme://host[:port]); see isOwnOrigin for one that need not be named. selfConnect allows exec,
// attach, portforward and proxy requests that act as the proxy itself.
func NewPlainGuard(acceptHosts, acceptOrigins []string, selfConnect bool) *PlainGuard {
	g := &PlainGuard{hosts: []string{"localhost", "127.0.0.1", "[::1]"}, selfConnect: selfConnect}
	for _, h := range acceptHosts {
		if address, err := netip.ParseAddr(h); err == nil && address.Is6() {
			h = "[" + h + "]" // as in a Host header
		}
		g.hosts = append(g.hosts, normalizedHost(h))
	}
	for _, o := range acceptOrigins {
		g.origins = append(g.origins, strings.ToLower(o))
	}
	return g
}

// PlainRequest is what the guard looks at.
type PlainRequest struct {
	Host    string   // the Host header
	Origins []string // the values of Origin headers
	Method  string
	Target  string // the request target, raw
	Upgrade bool   // it requests another protocol
	AsSelf  bool   // upstream will see the proxy's own identity
}

// Refusal returns why the request may not pass, or nil. The message names the value and the remedy.
// The caller closes the connection after it: a client that did not wait may have sent behind an
// upgrade what is no request (DEV-11).
func (g *PlainGuard) Refusal(r PlainRequest) *metav1.Status {
	if !g.isHostAccepted(r.Host) {
		return apistatus.Forbidden(
			fmt.Sprintf("host %q is not accepted on this listener: use localhost, 127.0.0.1 or [::1], or add it to "+
				"--accept-hosts", apistatus.Clip(r.Host)))
	}
	for _, origin := range r.Origins {
		if !slices.Contains(g.origins, strings.ToLower(origin)) && !isOwnOrigin(r, origin) {
			return apistatus.Forbidden(fmt.Sprintf("origin %q is not accepted on this listener: add it to --accept-origins",
				apistatus.Clip(origin)))
		}
	}
	if !r.AsSelf || g.selfConnect {
		return nil
	}
	if what := connectRequest(r); what != "" {
		return apistatus.Forbidden(
			fmt.Sprintf("%s is refused for requests that act as the proxy's own identity: send your own Authorization, or "+
				"start the proxy with --listen-allow-connect", what))
	}
	return nil
}

// isOwnOrigin reports that a request opens a watch over a WebSocket and that its only Origin is the
// listener as the request addresses it. Clients outside browsers send that, because kube-apiserver
// requires an Origin of every WebSocket. No other page gains by it: a browser sends the origin of
// the page, and a page of this very origin reads the same by GET, which has no Origin. The Host is
// accepted already, so a name that is rebound to loopback is none.
func isOwnOrigin(r PlainRequest, origin string) bool {
	if !r.Upgrade || len(r.Origins) != 1 || !strings.EqualFold(origin, "http://"+r.Host) {
		return false
	}
	path, query, _ := strings.Cut(r.Target, "?")
	return upgradesWatch(r.Method, parseAPIPath(path), query)
}

// isHostAccepted reports whether a host is among the accepted ones, with its port or without.
func (g *PlainGuard) isHostAccepted(host string) bool {
	if slices.Contains(g.hosts, normalizedHost(host)) {
		return true
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	return slices.Contains(g.hosts, normalizedHost(name))
}

// normalizedHost is one form of all that name a host without a port: lower case, an IPv6 address in
// its shortest form (RFC 5952), and an IPv4 address as such where IPv6 maps it.
func normalizedHost(host string) string {
	host = strings.ToLower(host)
	if !strings.HasPrefix(host, "[") || !strings.HasSuffix(host, "]") {
		return host
	}
	address, err := netip.ParseAddr(host[1 : len(host)-1])
	switch {
	case err != nil || !address.Is6():
		return host
	case address.Is4In6():
		return address.Unmap().String()
	}
	return "[" + address.String() + "]"
}

// connectRequest names a request that reaches into a workload; "" for all others. An upgrade of
// anything but a watch does: subresources of other API groups (consoles, VNC) are connects by
// another name.
func connectRequest(r PlainRequest) string {
	raw, query, _ := strings.Cut(r.Target, "?")
	path := parseAPIPath(raw)
	switch {
	case path.isConnect():
		return fmt.Sprintf("path %q", apistatus.Clip(raw))
	case r.Upgrade && !upgradesWatch(r.Method, path, query):
		return fmt.Sprintf("an upgrade on path %q", apistatus.Clip(raw))
	}
	return ""
}
