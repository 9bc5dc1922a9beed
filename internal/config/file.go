package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"spillway/internal/rotation"
)

// configEntry is one key of the configuration file. Values stay text, so that a value means the
// same here as on the command line.
type configEntry struct {
	key    string
	place  string // "conf.yaml:3"
	value  string // if not isList
	list   []string
	isList bool
}

// readConfigFile returns the entries of a YAML file in their order, each key once. Errors about its
// contents name the file and the line. It decodes into nodes and not into a struct, which would
// lose the lines and guess types: the text no would become false.
func readConfigFile(path string) ([]configEntry, error) {
	text, err := rotation.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: not valid YAML: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: holds more than one YAML document; keep one", path)
	}
	return entriesOf(path, doc.Content[0])
}

func entriesOf(path string, root *yaml.Node) ([]configEntry, error) {
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: must be lines of the form `flag-name: value`", path, root.Line)
	}
	var entries []configEntry
	lineOf := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := resolve(root.Content[i])
		e := configEntry{key: key.Value, place: fmt.Sprintf("%s:%d", path, key.Line)}
		if first, twice := lineOf[e.key]; twice {
			return nil, fmt.Errorf("%s: %s: given twice, first in line %d; keep one", e.place, e.key, first)
		}
		lineOf[e.key] = key.Line
		if err := e.read(resolve(root.Content[i+1])); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func (e *configEntry) read(value *yaml.Node) error {
	switch {
	case isText(value):
		e.value = value.Value
	case value.Kind == yaml.SequenceNode:
		e.isList, e.list = true, []string{}
		for _, item := range value.Content {
			if item = resolve(item); !isText(item) {
				return fmt.Errorf("%s: %s: the items of a list must be plain values", e.place, e.key)
			}
			e.list = append(e.list, item.Value)
		}
	case value.Kind == yaml.ScalarNode:
		return fmt.Errorf("%s: %s: has no value; give one, or write \"\" to empty it", e.place, e.key)
	default:
		return fmt.Errorf("%s: %s: must be a value or a list, not a mapping", e.place, e.key)
	}
	return nil
}

// resolve is the node that an alias names, or the node itself.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isText(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag != "!!null" }
