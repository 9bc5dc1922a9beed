package config

import "math"

const (
	// upstreamShare is the part of the open files, one in so many, that is kept for everything but
	// clients' connections: for those to upstream, of which requests that pass through over HTTP/1.1
	// need one each, and for files.
	upstreamShare = 4
	// leastUpstream is how many are kept at least.
	leastUpstream = 128
	// mostConnections is for a process without a limit worth the name: what they cost is memory long
	// before.
	mostConnections = 1 << 20
)

// Connections is how many connections clients may have.
func (o *Settings) Connections() int {
	if o.MaxConnections > 0 {
		return o.MaxConnections
	}
	return connectionsWithin(openFiles())
}

// connectionsWithin is how many of so many open files may be clients' connections.
func connectionsWithin(files uint64) int {
	kept := max(files/upstreamShare, leastUpstream)
	if files <= kept {
		return 1
	}
	return int(min(files-kept, mostConnections)) // #nosec G115 -- at most mostConnections
}

// unlimitedFiles is where the system does not say.
const unlimitedFiles = math.MaxUint64
