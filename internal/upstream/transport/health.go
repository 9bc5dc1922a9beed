package transport

import "time"

// How soon a connection is known to be dead that neither side has closed: an apiserver that hangs,
// a host or a path that has gone. A mirror on it is not current any more, and no byte tells. What
// is taken for dead too early costs a connection and new watches that go on where the old ones
// were; what is taken for alive costs every client the time in which it hears nothing, and
// client-go's own 45 s are most of what an outage of seconds takes to heal.
//
// What passes through for clients is another matter. A write that is under way is lost with its
// connection, and an apiserver that is merely busy may be silent for seconds: there HTTP/2 has the
// patience that it has in client-go, so that no client loses a request that it would not have lost
// without us.
const (
	// pingAfter and pingTimeout are for the HTTP/2 of mirrors: a connection that has been silent so
	// long is sent a ping, and has so long for it. passingPingAfter and passingPingTimeout are for
	// that of clients' requests.
	pingAfter          = 4 * time.Second
	pingTimeout        = 4 * time.Second
	passingPingAfter   = 30 * time.Second
	passingPingTimeout = 15 * time.Second
	// unacknowledged is how long bytes may be on their way to a host that does not acknowledge them
	// (TCP_USER_TIMEOUT), and keepaliveProbe how often a silent one is probed for an
	// acknowledgement, for HTTP/1.1.
	unacknowledged = 10 * time.Second
	keepaliveIdle  = 5 * time.Second
	keepaliveProbe = 2 * time.Second
	// dialTimeout and handshakeTimeout are for a connection that is being made. A host that is up
	// again is found by the next one sooner than by the kernel's doubling of its own attempts.
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
)
