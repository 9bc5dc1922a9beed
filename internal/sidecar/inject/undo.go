package inject

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// change is what a value was before it was replaced.
type change struct {
	path  string
	value any
}

// changed is what was replaced in a workload: values of NO_PROXY, and mounts of the pod's own
// service account, which the sidecar shows.
func changed(object any, w workload) (all []change) {
	if !isMarked(object, w) {
		return nil
	}
	mount := ownMount(object, w)
	for _, list := range []string{w.template + "/spec/initContainers", w.template + "/spec/containers"} {
		for i := range itemsAt(object, list) {
			container := fmt.Sprintf("%s/%d", list, i)
			if name, _ := at(object, container+"/name").(string); name == Container {
				continue
			}
			for k := range itemsAt(object, container+"/env") {
				variable := fmt.Sprintf("%s/env/%d", container, k)
				name, _ := at(object, variable+"/name").(string)
				value, _ := at(object, variable+"/value").(string)
				if before, ours := strings.CutSuffix(value, ","+excepted); ours && slices.Contains(exceptVariables, name) {
					all = append(all, change{variable + "/value", before})
				}
			}
			for k, m := range itemsAt(object, container+"/volumeMounts") {
				if name, _ := at(m, "/name").(string); name == FilesVolume && mount != nil {
					all = append(all, change{fmt.Sprintf("%s/volumeMounts/%d", container, k), mount})
				}
			}
		}
	}
	return all
}

// ownMount is the mount of the pod's own service account that the sidecar was given; nil if there
// is none.
func ownMount(object any, w workload) any {
	for _, c := range itemsAt(object, w.template+"/spec/initContainers") {
		if name, _ := at(c, "/name").(string); name != Container {
			continue
		}
		for _, m := range itemsAt(c, "/volumeMounts") {
			name, _ := at(m, "/name").(string)
			place, _ := at(m, "/mountPath").(string)
			if path.Clean(place) == accountDir && name != TokenVolume && !strings.HasPrefix(name, tokenVolume) {
				return m
			}
		}
	}
	return nil
}

func itemsAt(object any, pointer string) []any {
	items, _ := at(object, pointer).([]any)
	return items
}

// with is a tree with a value at a path that there is.
func with(tree any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch node := tree.(type) {
	case map[string]any:
		node[path[0]] = with(node[path[0]], path[1:], value)
	case []any:
		var i int
		if _, err := fmt.Sscan(path[0], &i); err == nil && i < len(node) {
			node[i] = with(node[i], path[1:], value)
		}
	}
	return tree
}

// cutBack finds what is to be cut of a text so that a string is what it was.
func (t *sourceText) cutBack(c change) (cut [2]int, ok bool) {
	node := t.find(parts(c.path))
	before, isText := c.value.(string)
	if node == nil || !isText {
		return cut, false
	}
	end, ok := t.endOf(node)
	return [2]int{end - len(node.Value) + len(before), end}, ok
}
