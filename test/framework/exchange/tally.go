package exchange

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Tally is what a run has shown. Safe for use by several goroutines.
type Tally struct {
	mu    sync.Mutex
	cases []Case
	used  map[string]int // deviations, by identity
}

// Case is a request that was sent both ways. It stands for some rules.
type Case struct {
	Test            string // its name
	Rules           []string
	Direct, Proxied int // statuses; 0 where a case is more than one answer
	By              Source
	Equal           bool
	Deviation       string // the V-n by which the answers may differ
}

// NewTally is empty.
func NewTally() *Tally { return &Tally{used: map[string]int{}} }

// Note notes a case.
func (y *Tally) Note(c Case) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.cases = append(y.cases, c)
}

// Cases are those noted so far, by the names of their tests.
func (y *Tally) Cases() []Case {
	y.mu.Lock()
	defer y.mu.Unlock()
	cases := slices.Clone(y.cases)
	slices.SortStableFunc(cases, func(a, b Case) int { return strings.Compare(a.Test, b.Test) })
	return cases
}

// Deviated notes that a comparison relied on a deviation.
func (y *Tally) Deviated(id string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.used[id]++
}

// Unused are the deviations that nothing relied on, but for those from older API servers.
func (y *Tally) Unused() []string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var ids []string
	for _, d := range Deviations {
		if y.used[d.ID] == 0 && d.Releases == "" {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// Text is the outcome.
func (y *Tally) Text() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var n Count
	for _, c := range y.cases {
		n.Add(c)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%v\n", n)
	fmt.Fprintf(&b, "allowed differences and how often they were met:\n")
	for _, d := range Deviations {
		fmt.Fprintf(&b, "  %-5s %5d×  %s (%s): %s\n", d.ID, y.used[d.ID], d.What, d.Rule, d.Why)
	}
	return b.String()
}

// Count is how many cases each source answered.
type Count struct{ Total, Equal, Memory, Refusal, Upstream int }

// Add counts a case.
func (n *Count) Add(c Case) {
	n.Total++
	if c.Equal {
		n.Equal++
	}
	switch c.By {
	case Memory:
		n.Memory++
	case Refusal:
		n.Refusal++
	default:
		n.Upstream++
	}
}

// Sum adds what another count counted.
func (n *Count) Sum(other Count) {
	n.Total += other.Total
	n.Equal += other.Equal
	n.Memory += other.Memory
	n.Refusal += other.Refusal
	n.Upstream += other.Upstream
}

// Own is how many in a hundred the proxy answered itself.
func (n Count) Own() int { return 100 * (n.Memory + n.Refusal) / max(n.Total, 1) }

// FromMemory is how many in a hundred were answered from memory.
func (n Count) FromMemory() int { return 100 * n.Memory / max(n.Total, 1) }

func (n Count) String() string {
	return fmt.Sprintf("%d cases, %d equal both ways: %d answered from memory, %d refused by the proxy itself, %d "+
		"passed through",
		n.Total, n.Equal, n.Memory, n.Refusal, n.Upstream)
}
