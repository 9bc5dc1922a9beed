package config

import (
	"math"

	"golang.org/x/sys/unix"
)

const (
	// otherFilesShare is the share of the open files, one of so many, that clients' connections leave
	// to files and to connections upstream. A request that passes through over HTTP/1.1 needs one.
	otherFilesShare = 4
	// minOtherFiles is the least that they leave.
	minOtherFiles = 128
	// connectionsLimit holds without a limit of open files. Long before it, memory is short.
	connectionsLimit = 1 << 20
)

// Connections is how many connections clients may have.
func (o *Settings) Connections() int {
	if o.MaxConnections > 0 {
		return o.MaxConnections
	}
	return connectionsWithin(openFiles())
}

// connectionsWithin is how many of a number of open files may be clients' connections.
func connectionsWithin(files uint64) int {
	others := max(files/otherFilesShare, minOtherFiles)
	if files <= others {
		return 1
	}
	return int(min(files-others, connectionsLimit)) // #nosec G115 -- at most connectionsLimit
}

// openFiles is how many files this process may have open; unlimitedFiles where that is unknown. Go
// has raised the limit to what the system allows.
func openFiles() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return unlimitedFiles
	}
	return limit.Cur
}

const unlimitedFiles = math.MaxUint64
