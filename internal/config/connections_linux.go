package config

import "golang.org/x/sys/unix"

// openFiles is how many files this process may have open. Go has raised it to what the system
// allows.
func openFiles() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return unlimitedFiles
	}
	return limit.Cur
}
