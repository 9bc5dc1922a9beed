package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8syaml "sigs.k8s.io/yaml"
)

// document is a document of a stream: its text and its content.
type document struct {
	text       string
	start, end int        // of the value in the text, if it is JSON
	root       *yaml.Node // nil: it is JSON
	json       []byte     // the content as kubectl reads it; nil: it has no pods
	object     any        // of json, with json.Number
}

// marker is a line that begins a document, with the directives in front of it.
var marker = regexp.MustCompile(`(?m)^(%.*\r?\n)*---([ \t\r\n]|\z)`)

// split cuts a stream in front of each marker, so that its parts together are the stream.
func split(text string) (parts []string) {
	from := 0
	for _, at := range marker.FindAllStringIndex(text, -1) {
		if at[0] > from {
			parts = append(parts, text[from:at[0]])
			from = at[0]
		}
	}
	return append(parts, text[from:])
}

// contentOf is where a part of a stream begins behind its marker.
func contentOf(text string) int {
	start := 0
	if at := marker.FindStringIndex(text); at != nil && at[0] == 0 {
		start = at[1]
	}
	rest := strings.TrimPrefix(text[start:], "\ufeff")
	return len(text) - len(strings.TrimLeft(rest, " \t\r\n"))
}

// parse reads a part of a stream as kubectl does: as JSON values, one after another, or else as one
// document of YAML.
func parse(text string) ([]*document, error) {
	start := contentOf(text)
	if !strings.HasPrefix(text[start:], "{") {
		return parseYAML(text)
	}
	all, err := parseJSON(text, start)
	if err == nil {
		return all, nil
	}
	if all, other := parseYAML(text); other == nil { // YAML in flow style, which also begins with {
		return all, nil
	}
	return nil, err
}

func parseJSON(text string, start int) (all []*document, err error) {
	decoder := json.NewDecoder(strings.NewReader(text[start:]))
	from := 0
	for {
		var value json.RawMessage
		switch err := decoder.Decode(&value); {
		case errors.Is(err, io.EOF):
			all[len(all)-1].text += text[from:]
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("not valid JSON: %w", err)
		}
		end := start + int(decoder.InputOffset())
		d := &document{text: text[from:end], start: end - len(value) - from, end: end - from, json: value}
		if err := checkValues(string(value)); err != nil {
			return nil, err
		}
		if d.object, err = decode(value); err != nil {
			return nil, err
		}
		all, from = append(all, d), end
	}
}

// parseYAML reads one document of YAML.
func parseYAML(text string) ([]*document, error) {
	if err := checkValues(text); err != nil {
		return nil, err
	}
	d := &document{text: text, root: &yaml.Node{}}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	switch err := decoder.Decode(d.root); {
	case errors.Is(err, io.EOF):
		return []*document{d}, nil
	case err != nil:
		return nil, fmt.Errorf("not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("another document follows without a line --- between them: add one")
	}
	if !mayHavePods(d.root.Content[0]) {
		return []*document{d}, nil
	}
	if err := checkAliases(d.root.Content[0]); err != nil {
		return nil, err
	}
	var err error
	if d.json, err = k8syaml.YAMLToJSON([]byte(text)); err != nil {
		return nil, fmt.Errorf("not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	d.object, err = decode(d.json)
	return []*document{d}, err
}

// describe names a document without pods by its kind and name, and says why it has none. An empty
// name means that there is no object in it.
func (d *document) describe() (described, reason string) {
	fields, _ := d.object.(map[string]any)
	kind, _ := fields["kind"].(string)
	name, _, _ := unstructured.NestedString(fields, "metadata", "name")
	switch {
	case d.object == nil && (d.root == nil || len(d.root.Content) == 0):
		return "", ""
	case d.object == nil: // it is not read as kubectl reads it
		root := d.root.Content[0]
		if root.Tag == "!!null" {
			return "", ""
		}
		kind, name = textOf(root, "kind"), textOf(root, "metadata", "name")
	}
	if kind == "" {
		return "a document without kind", "it is no object of Kubernetes"
	}
	return strings.TrimSuffix(strings.ToLower(kind)+"/"+name, "/"), "its kind is not known to have pods"
}

// textOf is the text at a path in a mapping; empty: there is none.
func textOf(node *yaml.Node, path ...string) string {
	for _, key := range path {
		var value *yaml.Node
		for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				value = node.Content[i+1]
			}
		}
		if value == nil {
			return ""
		}
		node = value
	}
	return node.Value
}

func decode(text []byte) (object any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&object)
	return object, err
}
