package memory

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Conceal keeps what is in memory out of core dumps and from other processes of the same user: the
// proxy's credentials, clients' tokens while a request lasts, and Secrets where they are mirrored.
// A process that is not dumpable writes no core, whatever catches cores (RLIMIT_CORE does not hold
// for a pipe in core_pattern), and cannot be attached to; its files in /proc belong to root, and
// the process itself may go on to read them.
//
// Go's memory cannot be kept out of dumps in part: objects move, and copies of them are everywhere.
func Conceal() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("switching off core dumps: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keeping other processes from memory: %w", err)
	}
	return nil
}
