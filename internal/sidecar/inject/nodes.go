package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	k8syaml "sigs.k8s.io/yaml"
)

// patched is the text of a document after a patch. Nodes of YAML are changed in place, so that they
// keep comments and order. If the result has another content than the patch demands, because of
// anchors that a change reached, the document is written from its content instead.
func (d *document) patched(p Patch) (string, error) {
	want, err := applied(d.json, p)
	if err != nil {
		return "", err
	}
	if d.root == nil {
		var indented bytes.Buffer
		err := json.Indent(&indented, want, "", "  ")
		return d.text[:d.start] + indented.String() + d.text[d.end:], err
	}
	object, err := decode(want)
	if err != nil {
		return "", err
	}
	begin := ""
	if at := marker.FindStringIndex(d.text); at != nil && at[0] == 0 {
		begin = "---\n"
	}
	if editNodes(d.root.Content[0], p) {
		if text, err := encode(d.root); err == nil && hasContent(begin+text, object) {
			return begin + text, nil
		}
	}
	text, err := k8syaml.JSONToYAML(want)
	if err == nil && !hasContent(begin+string(text), object) {
		err = errors.New("is written in a way that cannot be changed: pass it through kubectl create --dry-run=client " +
			"--output=yaml --filename=- first")
	}
	return begin + string(text), err
}

// applied is a JSON document after a patch.
func applied(document []byte, p Patch) ([]byte, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, err
	}
	return patch.Apply(document)
}

// hasContent reports that kubectl reads a content from a document of YAML.
func hasContent(text string, want any) bool {
	got, err := k8syaml.YAMLToJSON([]byte(text))
	if err != nil {
		return false
	}
	object, err := decode(got)
	return err == nil && reflect.DeepEqual(object, want)
}

// encode writes YAML in the style of kubectl.
func encode(root *yaml.Node) (string, error) {
	var out strings.Builder
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	err := encoder.Encode(root)
	return strings.ReplaceAll(out.String(), "!!merge <<:", "<<:"), err // of each merge the encoder names the tag
}

// editNodes applies a patch to nodes. It reports false if a path leads through an alias.
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

// editNode applies an operation to the part of a node that a key or an index names. It reports
// whether it could.
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

// indexOf is the index in a node's content of the value that a key or an index names; -1: it has no
// such key. An index may be beyond the content.
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
