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
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// A budget is for more than Go: for the program itself, and for what the kernel holds of
// connections, which counts against a container like all else (memory.stat's sock). programSize is
// about what of the program is in memory; goShare is Go's part of the rest.
const (
	programSize = 32 << 20
	goShare     = 0.85
)

// usual is what Go may use of a budget while nothing is held for it elsewhere.
func usual(budget int64) int64 { return max(int64(goShare*float64(budget-programSize)), budget/2) }

// limitVariable is Go's own word for its limit.
const limitVariable = "GOMEMLIMIT"

// Budget is how much memory the process may use: the configured bytes, or else the limit of its
// control group; 0 if there is none.
func Budget(asked int64) (int64, error) {
	if asked > 0 {
		return asked, nil
	}
	limit, err := memlimit.FromCgroup()
	switch {
	case errors.Is(err, memlimit.ErrNoLimit), errors.Is(err, memlimit.ErrNoCgroup),
		errors.Is(err, memlimit.ErrCgroupsNotSupported):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("the memory limit of the control group: %w", err)
	case limit > maxBudget || ownUnlimited(os.DirFS("/")): // as version 1 says that there is none
		return 0, nil
	}
	return int64(limit), nil // #nosec G115 -- below maxBudget
}

// maxBudget is more than any machine has.
const maxBudget = 1 << 50

// Limit is what Go may use of a budget, which is the garbage collector's limit. What others hold
// for the process is not Go's to use, so the more that is, the lower the limit; but not below half
// of what it is without, where the collector would do nothing else.
type Limit struct {
	budget int64 // 0: the environment has set the limit
	now    int64
	set    func(int64)
}

// limitStep is how much a limit has to change, as a part of the budget, one in so many, to be set
// anew: the collector stops everything for that.
const limitStep = 64

// NewLimit tells the garbage collector of a budget, unless the environment has told it something
// else. nil: there is no limit.
func NewLimit(budget int64) *Limit {
	if os.Getenv(limitVariable) != "" {
		fixed := debug.SetMemoryLimit(-1)
		if fixed > maxBudget {
			return nil
		}
		return &Limit{now: fixed}
	}
	if budget == 0 {
		return nil
	}
	l := &Limit{budget: budget, set: func(limit int64) { debug.SetMemoryLimit(limit) }}
	l.Leave(0)
	return l
}

// Bytes is the limit.
func (l *Limit) Bytes() int64 { return l.now }

// Leave leaves room for what others hold. One goroutine calls it.
func (l *Limit) Leave(aside int64) {
	if l.budget == 0 {
		return
	}
	all := usual(l.budget)
	limit := max(all-max(aside, 0), all/2)
	if changed := limit - l.now; changed < -l.budget/limitStep || changed > l.budget/limitStep {
		l.now = limit
		l.set(limit)
	}
}

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
