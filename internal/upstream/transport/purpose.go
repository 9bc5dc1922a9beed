package transport

import "time"

// These times decide how soon a connection is known to be dead that neither side has closed,
// because a server hangs, or a host or a path is gone.
//
// A mirror on a dead connection is not current, and no byte says so. A connection that is given up
// too early costs new watches that go on where the old ones were. One that is kept costs every
// client the time in which it receives nothing: client-go's 45 s are most of what an outage of
// seconds takes to heal.
//
// A client's request that passes through is lost with its connection, and an API server that is
// busy may be silent for seconds. There HTTP/2 waits as long as client-go, so that no client loses
// a request because of the proxy.
const (
	// pingAfter is how long an HTTP/2 connection of mirrors is silent before it is sent a ping, and
	// pingTimeout how long the ping may take. passingPingAfter and passingPingTimeout are for
	// clients' requests.
	pingAfter          = 4 * time.Second
	pingTimeout        = 4 * time.Second
	passingPingAfter   = 30 * time.Second
	passingPingTimeout = 15 * time.Second
	// unacknowledged is how long bytes may be on their way to a host that does not acknowledge them
	// (TCP_USER_TIMEOUT). A connection that has been silent for keepaliveIdle is probed every
	// keepaliveProbe.
	unacknowledged = 10 * time.Second
	keepaliveIdle  = 5 * time.Second
	keepaliveProbe = 2 * time.Second
	// dialTimeout and handshakeTimeout are for a connection that is being made. The next attempt
	// finds a host that is up again sooner than the kernel's doubled pauses do. A request that waits
	// for a connection twice, first for its review, ends within ten seconds.
	dialTimeout      = 4 * time.Second
	handshakeTimeout = 5 * time.Second
)

const (
	idleTimeout = 90 * time.Second
	// http1IdleTimeout is how long an idle connection of HTTP/1.1 is kept: kube-apiserver closes one
	// after 90 s, and a request that is sent just then may get no answer.
	http1IdleTimeout = time.Minute
	// mirrorIdleLimit is how many idle connections are kept for mirrors. passThroughIdleLimit is
	// for pass-through: as many as clients of a busy proxy use at once over HTTP/1.1.
	mirrorIdleLimit      = 25
	passThroughIdleLimit = 256
	// linkIdleTimeout is how long the connection of a Link is kept for the next probe.
	linkIdleTimeout = 30 * time.Second

	// freshIdleTimeout is for a connection that no request uses, because the one that wanted it
	// ended meanwhile. freshPingAfter and freshPingTimeout together are as long as for other
	// requests that pass through.
	//
	// The first two are short because net/http's timers for them hold a connection of HTTP/2, some
	// 16 kB, until they expire, also after the connection has ended with its answer.
	freshIdleTimeout = time.Second
	freshPingAfter   = time.Second
	freshPingTimeout = passingPingAfter + passingPingTimeout - freshPingAfter
)

// Purpose is what a transport is for.
type Purpose struct {
	http1Only   bool
	singleUse   bool // each request has a connection of its own
	decompress  bool // net/http requests gzip, and decompresses the answer
	connLimit   int  // 0: any number
	idleLimit   int
	idleTimeout time.Duration
	pingAfter   time.Duration
	pingTimeout time.Duration
}

// The kinds of transports.
var (
	// Mirrors is for reflectors, probes of discovery, and other requests of the proxy's own.
	Mirrors = Purpose{
		decompress: true, idleLimit: mirrorIdleLimit, idleTimeout: idleTimeout,
		pingAfter: pingAfter, pingTimeout: pingTimeout,
	}
	// Passing is for requests that pass through, over HTTP/2 if upstream speaks it.
	Passing = Purpose{
		idleLimit: passThroughIdleLimit, idleTimeout: idleTimeout,
		pingAfter: passingPingAfter, pingTimeout: passingPingTimeout,
	}
	// PassingHTTP1 is Passing over HTTP/1.1, which upgrades (exec, port-forward) need and which
	// takes less for large answers.
	PassingHTTP1 = Purpose{
		http1Only: true, idleLimit: passThroughIdleLimit, idleTimeout: http1IdleTimeout,
		pingAfter: passingPingAfter, pingTimeout: passingPingTimeout,
	}
	// PassingFresh is Passing with a connection for each request.
	PassingFresh = Purpose{
		singleUse: true, idleTimeout: freshIdleTimeout, pingAfter: freshPingAfter, pingTimeout: freshPingTimeout,
	}
	// oneConnection is for a Link.
	oneConnection = Purpose{
		http1Only: true, connLimit: 1, idleLimit: 1, idleTimeout: linkIdleTimeout,
		pingAfter: passingPingAfter, pingTimeout: passingPingTimeout,
	}
)
