package passthrough

import "net/http"

// Transports carry requests upstream under the credentials of one lender: all of them, or none of
// them, add any. They must not decompress (DisableCompression), and must not follow environment
// proxies unless meant to.
//
// There are three, because connections are shared between clients, and what becomes of one by the
// request of one client becomes of the requests of all that are on it. kube-apiserver ends a
// connection of HTTP/2 (GOAWAY) after a request that it could not authenticate
// (UnauthenticatedHTTP2DOSMitigation), and any client may send such a request; what it had not
// begun to read must then be sent again, which a transport does by itself if it can.
type Transports struct {
	// Any had better be HTTP/2, so that thousands of watches are a few connections. Writes go by it,
	// too, since HTTP/1.1 cannot safely repeat one when an idle connection turns out to be dead.
	Any http.RoundTripper
	// HTTP1 must speak HTTP/1.1 only: upgrades need it, and reads that end are cheaper over it, since
	// the bytes of an answer pass without the frames, windows and goroutines of HTTP/2: half the
	// processor time of a large LIST. Requests without credentials go by it, too: each has its
	// connection to itself while it lasts, so that upstream may end that.
	HTTP1 http.RoundTripper
	// Fresh makes a connection for each request, for those whose body is passed on while it comes and
	// cannot be sent twice.
	Fresh http.RoundTripper
}

// carrier is which of them takes a request.
func (t Transports) carrier(in *Inbound, c class, credentials bool) http.RoundTripper {
	switch {
	case in.upgrade != "":
		return t.HTTP1
	case !in.repeatable(c):
		return t.Fresh
	case c == classRead, !credentials:
		return t.HTTP1
	}
	return t.Any
}
