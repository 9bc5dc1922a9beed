package inject

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds are the kinds with pods, and the path to the template of these.
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

// mayHavePods reports whether a document may have pods, before it is read as kubectl reads it. It
// is false only if its kind is written out. A merge, an alias or a tag may hide another kind.
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

// isPlain reports that a node is its text, without alias or tag.
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
	pointer  string         // to the template of its pods, a JSON pointer (RFC 6901)
	template map[string]any // the content of that
}

// workloadsIn are the workloads in an object at pointer, which may be a list of objects.
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
		return nil // it is invalid, which the API server says better
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
	for _, list := range []string{"initContainers", "containers"} { // before they are decoded
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
