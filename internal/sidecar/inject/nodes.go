package inject

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// encode writes YAML in kubectl's manner.
func encode(root *yaml.Node) (string, error) {
	var out strings.Builder
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	err := encoder.Encode(root)
	return strings.ReplaceAll(out.String(), "!!merge <<:", "<<:"), err // of each merge the encoder names the tag
}

// editNodes does a patch to nodes. It reports false where a path leads through an alias.
func editNodes(root *yaml.Node, p Patch) bool {
	for _, o := range p {
		path := strings.Split(o.Path, "/")[1:]
		parent := root
		for _, part := range path[:len(path)-1] {
			i := indexOf(parent, unescape(part))
			if i < 0 || i >= len(parent.Content) {
				return false
			}
			parent = parent.Content[i]
		}
		if !editNode(parent, unescape(path[len(path)-1]), o) {
			return false
		}
	}
	return true
}

// editNode does an operation to the part of a node that a key or an index names.
func editNode(parent *yaml.Node, key string, o Operation) bool {
	i := indexOf(parent, key)
	isThere := i >= 0 && i < len(parent.Content)
	isItem := parent.Kind == yaml.SequenceNode
	value := &yaml.Node{}
	text, err := json.Marshal(o.Value)
	var plain any
	if err != nil || json.Unmarshal(text, &plain) != nil || value.Encode(plain) != nil {
		return false
	}
	switch {
	case o.Op == "remove" && isThere && isItem:
		parent.Content = slices.Delete(parent.Content, i, i+1)
	case o.Op == "remove" && isThere:
		parent.Content = slices.Delete(parent.Content, i-1, i+1)
	case o.Op == "add" && isItem && i >= 0 && i <= len(parent.Content):
		parent.Content = slices.Insert(parent.Content, i, value)
	case isThere:
		before := parent.Content[i]
		value.HeadComment, value.LineComment, value.FootComment = before.HeadComment, before.LineComment, before.FootComment
		parent.Content[i] = value
	case o.Op == "add" && parent.Kind == yaml.MappingNode:
		parent.Content = append(parent.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	default:
		return false
	}
	return true
}

// indexOf is where the content of a node has what a key or an index names; -1: it has no such key.
func indexOf(n *yaml.Node, key string) int {
	switch n.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(key); err == nil {
			return i
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key && n.Content[i].Kind == yaml.ScalarNode {
				return i + 1
			}
		}
	}
	return -1
}
