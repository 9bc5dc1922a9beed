package inject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// remove takes out of one workload what was added to it.
func (d *document) remove(w workload) (bool, error) {
	if text, ok := d.original(w); ok {
		d.text = text
		return true, nil
	}
	if len(added(d.object, w)) == 0 {
		return false, &LeftError{"it is not injected"}
	}
	text, ok := d.text, true
	object := d.object
	for ok {
		paths := added(object, w)
		if len(paths) == 0 {
			d.text = text
			return true, nil
		}
		if text, ok = cut(text, paths[0]); ok {
			next, err := parse(text)
			if ok = err == nil && next.root != nil; ok {
				object = next.object
			}
		}
	}
	return true, d.removeFromTree(w)
}

// removeFromTree writes the document anew, without what was added, since its lines cannot be taken out one by one.
func (d *document) removeFromTree(w workload) error {
	object, err := decode(d.json)
	if err != nil {
		return err
	}
	for paths := added(object, w); len(paths) > 0; paths = added(object, w) {
		object = without(object, parts(paths[0]))
	}
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	d.text, err = d.written(text)
	return err
}

// added are the places of what was added to a workload.
func added(object any, w workload) (all []string) {
	if kept := w.object + "/metadata/annotations/" + escape(originalAnnotation); at(object, kept) != nil {
		all = append(all, kept) // what it keeps is another document than this by now
	}
	mark := w.template + "/metadata/annotations/" + escape(InjectedAnnotation)
	if at(object, mark) == nil {
		return all
	}
	named := func(list string, names ...string) {
		items, _ := at(object, list).([]any)
		for i, item := range items {
			if name, _ := at(item, "/name").(string); slices.Contains(names, name) {
				all = append(all, fmt.Sprintf("%s/%d", list, i))
			}
		}
	}
	named(w.template+"/spec/initContainers", Container)
	named(w.template+"/spec/volumes", FilesVolume, KeyVolume)
	for _, list := range []string{w.template + "/spec/initContainers", w.template + "/spec/containers"} {
		containers, _ := at(object, list).([]any)
		for i := range containers {
			named(fmt.Sprintf("%s/%d/env", list, i), hostVariable, portVariable)
			named(fmt.Sprintf("%s/%d/volumeMounts", list, i), FilesVolume)
		}
	}
	return append(all, mark) // last: without it nothing is ours
}

// cut takes the lines of one thing out of a text, up to where the next one begins or the comment above that; and with the last of a list
// or mapping its key. It reports false if the thing has no lines of its own.
func cut(text, pointer string) (string, bool) {
	t, ok := read(text)
	if !ok {
		return "", false
	}
	path := parts(pointer)
	for len(path) > 0 {
		parent := t.find(path[:len(path)-1])
		if !isBlock(parent) {
			return "", false
		}
		per := 1
		if parent.Kind == yaml.MappingNode {
			per = 2
		}
		if len(parent.Content) > per {
			return t.cutFrom(parent, path)
		}
		path = path[:len(path)-1]
	}
	return "", false
}

// cutFrom takes what path leads to out of its parent, which has other parts.
func (t *page) cutFrom(parent *yaml.Node, path []string) (string, bool) {
	node := t.find(path)
	if node == nil {
		return "", false
	}
	line, column := node.Line, parent.Column
	if parent.Kind == yaml.MappingNode {
		key := parent.Content[indexOf(parent, path[len(path)-1])]
		line, column = key.Line, key.Column
	}
	if !t.begins(line, column) {
		return "", false
	}
	end := line + 1
	for end <= t.lines() && !t.ends(end, column, parent.Kind == yaml.SequenceNode) {
		end++
	}
	for end > line+1 && isFiller(t.line(end-1)) {
		end--
	}
	return t.text[:t.starts[line-1]] + t.text[t.starts[end-1]:], true
}

// ends reports that a line is not of what began at a column before it: something begins there, at this column or in front of it.
func (t *page) ends(line, column int, item bool) bool {
	text := t.line(line)
	if isFiller(text) {
		return false
	}
	indent := len(text) - len(strings.TrimLeft(text, " "))
	if indent == column-1 && !item {
		return !strings.HasPrefix(text[indent:], "- ") // a list may be as far left as its key
	}
	return indent <= column-1
}

// isFiller reports that a line says nothing.
func isFiller(line string) bool {
	text := strings.TrimSpace(line)
	return text == "" || strings.HasPrefix(text, "#")
}

// without is a tree without what a path leads to; and without what is empty then, as where it was added there was nothing.
func without(tree any, path []string) any {
	switch node := tree.(type) {
	case map[string]any:
		if len(path) == 1 {
			delete(node, path[0])
		} else if node[path[0]] = without(node[path[0]], path[1:]); isEmpty(node[path[0]]) {
			delete(node, path[0])
		}
	case []any:
		var i int
		if _, err := fmt.Sscan(path[0], &i); err != nil || i >= len(node) {
			return tree
		}
		if len(path) == 1 {
			return slices.Delete(node, i, i+1)
		}
		node[i] = without(node[i], path[1:])
	}
	return tree
}

func isEmpty(tree any) bool {
	switch node := tree.(type) {
	case map[string]any:
		return len(node) == 0
	case []any:
		return len(node) == 0
	}
	return tree == nil
}
