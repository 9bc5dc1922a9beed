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
	text   string
	root   *yaml.Node // nil: there is nothing but comments, or nothing that concerns us
	json   []byte     // as kubectl understands it; with root
	object any        // of json, numbers as they are
}

// marker is a line that begins a document, with the directives before it.
var marker = regexp.MustCompile(`(?m)^(%.*\r?\n)*---([ \t\r\n]|\z)`)

// split cuts a stream in front of each document, so that its parts together are the stream.
func split(text string) []string {
	var parts []string
	from := 0
	for _, at := range marker.FindAllStringIndex(text, -1) {
		if at[0] > from {
			parts = append(parts, text[from:at[0]])
			from = at[0]
		}
	}
	return append(parts, text[from:])
}

// parse reads one document. What is of no kind that has pods is not looked at any further.
func parse(text string) (*document, error) {
	d := &document{text: text}
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
	d.root = root.Content[0]
	return d, nil
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
	if d.root == nil {
		return nil
	}
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
