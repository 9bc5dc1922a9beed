package memory

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// ownUnlimited reports that the process's own control group has no memory limit, where those are of
// version 1. There a group sees the limits of all groups above it, too, which in a container
// without a limit is what the node has for all its pods.
func ownUnlimited(root fs.FS) bool {
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
