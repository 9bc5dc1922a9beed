package inject

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// unfoldedLimitBytes bounds what the aliases of a document add to it. A line of JSON says again
// what each of them stands for: 10,000 aliases of a text of 10 kB, which are 40 kB of YAML, would
// be 100 MB.
const unfoldedLimitBytes = 4 << 20

// checkAliases refuses a document whose aliases unfold to too much, or that contains itself.
func checkAliases(root *yaml.Node) error {
	u := expansionSize{sizes: map[*yaml.Node]int64{}}
	u.size(root)
	switch {
	case u.circular:
		return errors.New("not valid YAML: an anchor contains itself")
	case u.added > unfoldedLimitBytes:
		return fmt.Errorf("its aliases unfold to more than %d bytes: write out what they stand for", unfoldedLimitBytes)
	}
	return nil
}

// expansionSize adds up what the nodes of a document are with their aliases unfolded.
type expansionSize struct {
	sizes    map[*yaml.Node]int64 // of nodes with an anchor; underWay while it is found out
	added    int64                // by aliases, no more than is needed to be too much
	circular bool
}

const (
	nodeBytes = 8 // about what a node is in JSON besides its text
	underWay  = -1
)

func (u *expansionSize) size(n *yaml.Node) int64 {
	if n.Kind == yaml.AliasNode {
		n := u.sizes[n.Alias]
		if n == underWay {
			u.circular = true
			return 0
		}
		u.added = min(u.added+n, unfoldedLimitBytes+1)
		return n
	}
	if n.Anchor != "" {
		u.sizes[n] = underWay
	}
	sum := int64(nodeBytes + len(n.Value))
	for _, part := range n.Content {
		sum = min(sum+u.size(part), 1<<40)
	}
	if n.Anchor != "" {
		u.sizes[n] = sum
	}
	return sum
}
