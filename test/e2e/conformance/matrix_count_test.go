package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"spillway/test/framework/exchange"
)

// ownLeast is how many requests in a hundred the proxy answers itself at least, and how many from
// memory of those that get a state or a stream, and of all that are valid.
const ownLeast = 60

// verbs are those that matrices are of, in the order in which they are listed.
var verbs = []string{"GET", "LIST", "WATCH"}

// matrixCounts is what came of the matrices, by set and verb.
type matrixCounts map[string]map[string]*matrixCount

// of is the count of a set's requests with one verb.
func (n matrixCounts) of(set, verb string) *matrixCount {
	if n[set] == nil {
		n[set] = map[string]*matrixCount{}
	}
	if n[set][verb] == nil {
		n[set][verb] = &matrixCount{}
	}
	return n[set][verb]
}

// sums are the counts of each set over all verbs.
func (n matrixCounts) sums() map[string]*matrixCount {
	sums := map[string]*matrixCount{}
	for set, counts := range n {
		sums[set] = &matrixCount{}
		for _, count := range counts {
			sums[set].sum(count)
		}
	}
	return sums
}

func (n matrixCounts) String() string {
	var b strings.Builder
	sums := n.sums()
	for _, set := range []string{everySet, validSet} {
		fmt.Fprintf(&b, "%s:\n", set)
		for _, verb := range verbs {
			fmt.Fprintf(&b, "  %-5s %v\n", verb, n.of(set, verb))
		}
		fmt.Fprintf(&b, "  all   %v\n", sums[set])
	}
	return b.String()
}

// matrixCount is what came of a matrix. Safe for use by several goroutines.
type matrixCount struct {
	mu     sync.Mutex
	all    exchange.Count
	states exchange.Count // what the API server answers with a state or a stream
}

func (n *matrixCount) add(c exchange.Case) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all.Add(c)
	if c.Direct == http.StatusOK {
		n.states.Add(c)
	}
}

// sum adds what another count counted, which counts no more.
func (n *matrixCount) sum(other *matrixCount) {
	n.all.Sum(other.all)
	n.states.Sum(other.states)
}

func (n *matrixCount) String() string {
	return fmt.Sprintf("%6d requests, %6d equal: %6d answered from memory (%d%%), %6d refused by the proxy itself, %6d "+
		"passed through (%d%% its own); "+
		"of %d that get a state or a stream, %d from memory (%d%%)",
		n.all.Total, n.all.Equal, n.all.Memory, n.all.FromMemory(), n.all.Refusal, n.all.Upstream, n.all.Own(),
		n.states.Total, n.states.Memory, n.states.FromMemory())
}
