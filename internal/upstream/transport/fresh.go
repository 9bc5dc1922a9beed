package transport

import (
	"net/http"
	"time"
)

// freshIdle is how long a connection is kept that was made in vain, since the request that wanted
// it ended meanwhile. freshPingAfter and freshPingTimeout are for the sign of life of its upstream,
// in all as long as for other requests that pass through.
//
// The first two are short since net/http's timers for them hold a connection of HTTP/2, some 16 kB,
// until they expire, also after the connection has ended with its answer.
const (
	freshIdle        = time.Second
	freshPingAfter   = time.Second
	freshPingTimeout = passingPingAfter + passingPingTimeout - freshPingAfter
)

// fresh sends each request on a connection of its own, over HTTP/2 if upstream speaks that: there
// an answer may begin, and end, before the request does. The connection ends with the answer, and
// no other request can end it.
//
// A single transport that keeps no connections alive would not do: requests that begin at once find
// each other's new connections of HTTP/2 in its pool, and the second one on it has lost a body that
// was closed on the way. So each request has a pool of its own.
type fresh struct {
	like *http.Transport // never used itself
}

// RoundTrip implements http.RoundTripper.
func (f fresh) RoundTrip(r *http.Request) (*http.Response, error) { return f.like.Clone().RoundTrip(r) }
