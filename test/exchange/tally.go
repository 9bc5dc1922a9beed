package exchange

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Tally is what a run has shown. Safe for use by several goroutines.
type Tally struct {
	mu     sync.Mutex
	cases  int
	memory int // answered from memory, and equal
	rules  map[string]struct{}
	used   map[string]int // deviations, by identity
}

// NewTally is empty.
func NewTally() *Tally { return &Tally{rules: map[string]struct{}{}, used: map[string]int{}} }

// Passed notes a case both of whose answers were equal. rules are separated by blanks.
func (y *Tally) Passed(rules string, fromMemory bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.cases++
	if fromMemory {
		y.memory++
	}
	for rule := range strings.FieldsSeq(rules) {
		y.rules[rule] = struct{}{}
	}
}

// Deviated notes that a comparison relied on a deviation.
func (y *Tally) Deviated(id string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.used[id]++
}

// Unused are the deviations that nothing relied on.
func (y *Tally) Unused() []string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var ids []string
	for _, d := range Deviations {
		if y.used[d.ID] == 0 {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// Text tells the outcome.
func (y *Tally) Text() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	rules := slices.SortedFunc(maps.Keys(y.rules), func(a, b string) int { return ruleNumber(a) - ruleNumber(b) })
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d cases, equal both ways; %d of them answered from memory\n", y.cases, y.memory)
	fmt.Fprintf(&b, "%d rules covered: %s\n", len(rules), strings.Join(rules, " "))
	fmt.Fprintf(&b, "allowed differences and how often they were met:\n")
	for _, d := range Deviations {
		fmt.Fprintf(&b, "  %-5s %5d×  %s (%s): %s\n", d.ID, y.used[d.ID], d.What, d.Rule, d.Why)
	}
	return b.String()
}

func ruleNumber(rule string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(rule, "W-"))
	if err != nil {
		return -1
	}
	return n
}
