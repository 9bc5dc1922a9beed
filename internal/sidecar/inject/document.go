package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	k8syaml "sigs.k8s.io/yaml"
)

// document is one of a stream: its text, and what that says.
type document struct {
	text       string
	start, end int    // of what it says in the text, without markers, and in JSON's manner without the last end of line
	json       []byte // as kubectl understands it; nil: there is nothing that concerns us
	object     any    // of json, numbers as they are
	isFlow     bool   // JSON, or YAML in JSON's manner
}

// marker is a line that begins a document, with the directives before it.
var marker = regexp.MustCompile(`(?m)^(%.*\r?\n)*---([ \t\r\n]|\z)`)

// split cuts a stream in front of each document, so that its parts together are the stream: YAML at
// its markers, and JSON between its values, as kubectl does.
func split(text string) []string {
	var parts []string
	from := 0
	for _, at := range marker.FindAllStringIndex(text, -1) {
		if at[0] > from {
			parts = append(parts, splitJSON(text[from:at[0]])...)
			from = at[0]
		}
	}
	return append(parts, splitJSON(text[from:])...)
}

// splitJSON cuts what is between two markers behind each of its JSON values. What is not JSON as a
// whole is one document.
func splitJSON(text string) []string {
	start, ok := startOfJSON(text)
	if !ok {
		return []string{text}
	}
	var parts []string
	from := 0
	decoder := json.NewDecoder(strings.NewReader(text[start:]))
	for {
		var value json.RawMessage
		switch err := decoder.Decode(&value); {
		case errors.Is(err, io.EOF):
			if len(parts) == 0 {
				return []string{text}
			}
			parts[len(parts)-1] += text[from:]
			return parts
		case err != nil:
			return []string{text}
		}
		to := start + int(decoder.InputOffset())
		parts = append(parts, text[from:to])
		from = to
	}
}

// startOfJSON is where JSON begins in a part of a stream, behind its marker. It reports false if
// there is none.
func startOfJSON(text string) (int, bool) {
	start := 0
	if at := marker.FindStringIndex(text); at != nil && at[0] == 0 {
		start = at[1]
	}
	rest := strings.TrimPrefix(text[start:], "\ufeff")
	rest = strings.TrimLeft(rest, " \t\r\n")
	return len(text) - len(rest), strings.HasPrefix(rest, "{")
}

// parse reads one document: as JSON if it is, or else as YAML.
func parse(text string) (*document, error) {
	if err := checkValues(text); err != nil {
		return nil, err
	}
	start, mayBeJSON := startOfJSON(text)
	if !mayBeJSON {
		return parseYAML(text)
	}
	d, err := parseJSON(text, start)
	if err == nil {
		return d, nil
	}
	if d, other := parseYAML(text); other == nil { // in JSON's manner, with a comment or the like
		return d, nil
	}
	return nil, fmt.Errorf("not valid JSON: %w", err)
}

func parseJSON(text string, start int) (*document, error) {
	decoder := json.NewDecoder(strings.NewReader(text[start:]))
	decoder.UseNumber()
	d := &document{text: text, start: start, isFlow: true}
	if err := decoder.Decode(&d.object); err != nil {
		return nil, err
	}
	d.end = start + int(decoder.InputOffset())
	if strings.TrimLeft(text[d.end:], " \t\r\n") != "" {
		return nil, errors.New("something follows its end")
	}
	d.json = []byte(text[start:d.end])
	return d, nil
}

// parseYAML reads one document of YAML. What is of no kind that has pods is not looked at any
// further.
func parseYAML(text string) (*document, error) {
	d := &document{text: text, end: len(text)}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	var root, second yaml.Node
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		return d, nil
	case err != nil:
		return nil, fmt.Errorf("not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("another document follows without a line --- between them: add one")
	}
	if !mayHavePods(root.Content[0]) {
		return d, nil
	}
	if err := checkAliases(root.Content[0]); err != nil {
		return nil, err
	}
	var err error
	if d.json, err = k8syaml.YAMLToJSON([]byte(text)); err != nil {
		return nil, fmt.Errorf("not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if d.object, err = decode(d.json); err != nil {
		return nil, err
	}
	d.setBounds(root.Content[0])
	return d, nil
}

var end = regexp.MustCompile(`(?m)^\.\.\.([ \t\r\n]|\z)`)

// setBounds finds where in its text a document of YAML is, without the markers around it.
func (d *document) setBounds(root *yaml.Node) {
	d.isFlow = root.Style&yaml.FlowStyle != 0
	t := &sourceText{d.text, root, lineStarts(d.text)}
	d.start = t.starts[root.Line-1]
	if !t.begins(root.Line, root.Column) { // behind ---
		d.start += len(string([]rune(t.line(root.Line))[:root.Column-1]))
	}
	if at := end.FindStringIndex(d.text[d.start:]); at != nil {
		d.end = d.start + at[0]
	}
	if d.isFlow {
		d.end = d.start + len(strings.TrimRight(d.text[d.start:d.end], " \t\r\n"))
	}
}

func decode(text []byte) (object any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&object)
	return object, err
}

func sameJSON(a, b []byte) bool {
	one, err := decode(a)
	if err != nil {
		return false
	}
	other, err := decode(b)
	return err == nil && reflect.DeepEqual(one, other)
}

// patched is a document after a patch.
func patched(document []byte, p Patch) ([]byte, error) {
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

// kinds are those with pods, by their group ("" with a version alone), with where the template of
// their pods is.
var kinds = map[string]map[string]string{
	"": {"Pod": "", "ReplicationController": "/spec/template"},
	"apps": {"Deployment": "/spec/template", "StatefulSet": "/spec/template", "DaemonSet": "/spec/template",
		"ReplicaSet": "/spec/template"},
	"batch": {"Job": "/spec/template", "CronJob": "/spec/jobTemplate/spec/template"},
}

// mayHavePods reports whether a document has to be read as kubectl reads it to know. It is false
// only where its one kind is written out: not where a merge, an alias or a tag may say another.
func mayHavePods(root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if !isPlain(key) || key.Value == "<<" || key.Value == "kind" && (!isPlain(value) || namesPods(value.Value)) {
			return true
		}
	}
	return false
}

// isPlain reports that a node is what its text says.
func isPlain(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Style&yaml.TaggedStyle == 0 }

func namesPods(kind string) bool {
	for _, of := range kinds {
		if _, ok := of[kind]; ok {
			return true
		}
	}
	return strings.HasSuffix(kind, "List")
}

// workload is an object that has pods.
type workload struct {
	name             string // for messages: deployment/name
	object, template string // JSON pointers
}

// workloads are those of a document, which may be one or a list of them.
func (d *document) workloads() []workload {
	return workloadsIn(d.object, "")
}

func workloadsIn(object any, pointer string) (all []workload) {
	fields, _ := object.(map[string]any)
	kind, _ := fields["kind"].(string)
	version, _ := fields["apiVersion"].(string)
	if items, ok := fields["items"].([]any); ok && strings.HasSuffix(kind, "List") {
		for i, item := range items {
			all = append(all, workloadsIn(item, fmt.Sprintf("%s/items/%d", pointer, i))...)
		}
		return all
	}
	group, _, grouped := strings.Cut(version, "/")
	if !grouped {
		group = ""
	}
	where, ok := kinds[group][kind]
	if !ok {
		return nil
	}
	if _, ok := at(object, where+"/spec").(map[string]any); !ok {
		return nil // no pods in it: not ours to complain about
	}
	name, _ := at(object, "/metadata/name").(string)
	return []workload{{strings.ToLower(kind) + "/" + name, pointer, pointer + where}}
}

// at is what is at a JSON pointer; nil if there is nothing.
func at(object any, pointer string) any {
	for _, part := range parts(pointer) {
		switch o := object.(type) {
		case map[string]any:
			object = o[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(o) {
				return nil
			}
			object = o[i]
		default:
			return nil
		}
	}
	return object
}

func parts(pointer string) []string {
	if pointer == "" {
		return nil
	}
	all := strings.Split(pointer[1:], "/")
	for i := range all {
		all[i] = unescape(all[i])
	}
	return slices.Clip(all)
}
