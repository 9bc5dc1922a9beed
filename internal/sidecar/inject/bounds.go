package inject

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// textLimitBytes bounds a stream. A manifest of 1 MB is a large one.
const textLimitBytes = 16 << 20

// operationLimit bounds the patch of a document. A pod takes 5 to 20 operations, which add some
// hundred values to it.
const operationLimit = 20_000

// valueLimit bounds the values of a document. Each becomes 200 bytes when it is parsed. A config
// map of the largest size that the API server allows, with JSON in it, has 200,000.
const valueLimit = 250_000

// checkValues refuses a document with too many values, before it is parsed. It counts the
// separators of values, also in strings, and builds nothing.
func checkValues(text string) error {
	n := 0
	for i := range len(text) {
		switch text[i] {
		case ':', ',', '[', '{', '?', '&', '*':
			n++
		case '-':
			if i+1 < len(text) && isSpace(rune(text[i+1])) {
				n++
			}
		}
	}
	if n > valueLimit {
		return fmt.Errorf("has up to %d values, of at most %d: give it in parts", n, valueLimit)
	}
	return nil
}

// ContainerLimit bounds the containers of a pod, each of which makes a part of the patch.
const ContainerLimit = 128

func checkContainers(n int) error {
	if n > ContainerLimit {
		return fmt.Errorf("has %d containers, of at most %d", n, ContainerLimit)
	}
	return nil
}

// unfoldedLimitBytes bounds what the aliases of a document add to it, because JSON repeats their
// anchors: 40 kB of YAML with 10,000 aliases of a text of 10 kB would be 100 MB.
const unfoldedLimitBytes = 4 << 20

// checkAliases refuses a document whose aliases unfold to too much, or with an anchor that contains
// itself.
func checkAliases(root *yaml.Node) error {
	const nodeBytes = 8           // about what a node takes in JSON besides its text
	const sumLimit = 1 << 40      // keeps sums from overflowing
	sizes := map[*yaml.Node]int{} // unfolded, of complete nodes with an anchor
	added, isCircular := 0, false
	var size func(n *yaml.Node) int
	size = func(n *yaml.Node) int {
		if n.Kind == yaml.AliasNode {
			of, isComplete := sizes[n.Alias]
			isCircular = isCircular || !isComplete
			added = min(added+of, unfoldedLimitBytes+1)
			return of
		}
		sum := nodeBytes + len(n.Value)
		for _, part := range n.Content {
			sum = min(sum+size(part), sumLimit)
		}
		if n.Anchor != "" {
			sizes[n] = sum
		}
		return sum
	}
	size(root)
	switch {
	case isCircular:
		return errors.New("not valid YAML: an anchor contains itself")
	case added > unfoldedLimitBytes:
		return fmt.Errorf("its aliases unfold to more than %d bytes: write out what they stand for", unfoldedLimitBytes)
	}
	return nil
}
