package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8syaml "sigs.k8s.io/yaml"
)

// document is one of a stream: its text, and what that says.
type document struct {
	text       string
	start, end int        // of JSON in the text
	root       *yaml.Node // of YAML; nil: it is JSON
	json       []byte     // as kubectl understands it; nil: there is nothing that concerns us
	object     any        // of json, numbers as they are
}

// marker is a line that begins a document, with the directives before it.
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

// parse reads a part of a stream as kubectl does: as values of JSON, one after another, if it is
// that, or else as a document of YAML.
func parse(text string) ([]*document, error) {
	start := contentOf(text)
	if !strings.HasPrefix(text[start:], "{") {
		return parseYAML(text)
	}
	all, err := parseJSON(text, start)
	if err == nil {
		return all, nil
	}
	if all, other := parseYAML(text); other == nil { // in JSON's manner, with a comment or the like
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

func decode(text []byte) (object any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&object)
	return object, err
}

// hasMeaning reports that kubectl understands a document of YAML as it is meant.
func hasMeaning(text string, want any) bool {
	got, err := k8syaml.YAMLToJSON([]byte(text))
	if err != nil {
		return false
	}
	object, err := decode(got)
	return err == nil && reflect.DeepEqual(object, want)
}

// patched is the text of a document after a patch. The nodes of YAML are changed in their places,
// and keep comments and order. Where they would say something else then, because of anchors that
// others share, all is written from what it says.
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
		if text, err := encode(d.root); err == nil && hasMeaning(begin+text, object) {
			return begin + text, nil
		}
	}
	text, err := k8syaml.JSONToYAML(want)
	if err == nil && !hasMeaning(begin+string(text), object) {
		err = errors.New("is written in a way that cannot be changed: pass it through kubectl create --dry-run=client " +
			"--output=yaml --filename=- first")
	}
	return begin + string(text), err
}

// applied is a document of JSON after a patch.
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

// kinds are those with pods, with where the template of their pods is.
var kinds = map[schema.GroupKind][]string{
	{Kind: "Pod"}:                        nil,
	{Kind: "ReplicationController"}:      {"spec", "template"},
	{Group: "apps", Kind: "Deployment"}:  {"spec", "template"},
	{Group: "apps", Kind: "StatefulSet"}: {"spec", "template"},
	{Group: "apps", Kind: "DaemonSet"}:   {"spec", "template"},
	{Group: "apps", Kind: "ReplicaSet"}:  {"spec", "template"},
	{Group: "batch", Kind: "Job"}:        {"spec", "template"},
	{Group: "batch", Kind: "CronJob"}:    {"spec", "jobTemplate", "spec", "template"},
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
	for of := range kinds {
		if of.Kind == kind {
			return true
		}
	}
	return strings.HasSuffix(kind, "List")
}

// workload is an object that has pods.
type workload struct {
	name     string         // for messages: deployment/name
	pointer  string         // where the template of its pods is: a JSON pointer
	template map[string]any // what that says
}

// workloadsIn are those of an object, which may be a list of them.
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
	group, _, isGrouped := strings.Cut(version, "/")
	if !isGrouped {
		group = ""
	}
	where, ok := kinds[schema.GroupKind{Group: group, Kind: kind}]
	if !ok {
		return nil
	}
	found, _, _ := unstructured.NestedFieldNoCopy(fields, where...)
	template, _ := found.(map[string]any)
	if _, ok := template["spec"].(map[string]any); !ok {
		return nil // no pods in it: not ours to complain about
	}
	name, _, _ := unstructured.NestedString(fields, "metadata", "name")
	for _, part := range where {
		pointer += "/" + part
	}
	return []workload{{strings.ToLower(kind) + "/" + name, pointer, template}}
}

// read reads the pod template of a workload.
func (w workload) read() (*Template, error) {
	n := 0
	for _, list := range []string{"initContainers", "containers"} { // before as many are decoded
		items, _, _ := unstructured.NestedFieldNoCopy(w.template, "spec", list)
		all, _ := items.([]any)
		n += len(all)
	}
	if err := checkContainers(n); err != nil {
		return nil, err
	}
	text, err := json.Marshal(w.template)
	if err != nil {
		return nil, err
	}
	template, err := decodeTemplate(text)
	if err != nil {
		return nil, fmt.Errorf("its pods cannot be read: %w", err)
	}
	return template, nil
}
