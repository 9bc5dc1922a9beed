package config

import (
	"math"

	"golang.org/x/sys/unix"
)

const (
	// upstreamShare is the part of the open files, one in so many, that is kept for everything but
	// clients' connections: for those to upstream, of which requests that pass through over HTTP/1.1
	// need one each, and for files.
	upstreamShare = 4
	// minUpstreamConns is how many are kept for upstream at least.
	minUpstreamConns = 128
	// maxConnections is for a process without a limit worth the name: what they cost is memory long
	// before.
	maxConnections = 1 << 20
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
	kept := max(files/upstreamShare, minUpstreamConns)
	if files <= kept {
		return 1
	}
	return int(min(files-kept, maxConnections)) // #nosec G115 -- at most maxConnections
}

// openFiles is how many files this process may have open; unlimitedFiles where the system does not
// say. Go has raised it to what the system allows.
func openFiles() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return unlimitedFiles
	}
	return limit.Cur
}

const unlimitedFiles = math.MaxUint64
