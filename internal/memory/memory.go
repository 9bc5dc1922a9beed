// Package memory keeps the process within its budget. It sets the garbage collector's limit, and as
// the memory in use comes near it degrades in three steps: drop derived bytes, shorten history,
// refuse and evict. It also hides the process's memory from other processes of the machine.
//
// Invariant: a step is taken only after those before it, and taken back before them. No step
// changes an answer.
package memory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// maxBudget is more than any machine has.
const maxBudget = 1 << 50

// Budget is how much memory the process may use: the configured bytes, or else the limit of its
// control group; 0 if there is none.
func Budget(configured int64) (int64, error) {
	if configured > 0 {
		return configured, nil
	}
	limit, err := memlimit.FromCgroup()
	switch {
	case errors.Is(err, memlimit.ErrNoLimit), errors.Is(err, memlimit.ErrNoCgroup),
		errors.Is(err, memlimit.ErrCgroupsNotSupported):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("the memory limit of the control group: %w", err)
	case limit > maxBudget || isOwnGroupUnlimited(os.DirFS("/")): // as version 1 says that there is none
		return 0, nil
	}
	return int64(limit), nil // #nosec G115 -- below maxBudget
}

// isOwnGroupUnlimited reports that the process's own control group has no memory limit, where those
// are of version 1. There a group sees the limits of all groups above it, too, which in a container
// without a limit is what the node has for all its pods.
func isOwnGroupUnlimited(root fs.FS) bool {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || !slices.Contains(strings.Split(parts[1], ","), "memory") {
			continue
		}
		const mounted, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		text, err := fs.ReadFile(root, path.Join(mounted, parts[2], file))
		if err != nil { // in a container its group is what is mounted
			text, err = fs.ReadFile(root, path.Join(mounted, file))
		}
		limit, malformed := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		return err == nil && malformed == nil && limit > maxBudget
	}
	return false
}
