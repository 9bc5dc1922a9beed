package inject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// remove takes out of the workloads of a document what was added to them.
func (d *document) remove() ([]Done, error) {
	before, err := d.restored()
	if err != nil || before != nil {
		return before, err
	}
	var all []Done
	var paths []string
	var changes []change
	for _, w := range d.workloads() {
		done := Done{Object: w.name}
		of := added(d.object, w)
		changes = append(changes, changed(d.object, w)...)
		if len(of) == 0 {
			done.Left = "it is not injected"
		}
		all, paths = append(all, done), append(paths, of...)
	}
	if len(paths) == 0 {
		return all, nil
	}
	object, err := d.stripped(paths, changes)
	if err != nil {
		return nil, err
	}
	want, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	text, ok := "", false
	if !d.isFlow {
		text, ok = cutAll(d.text, paths, changes)
	}
	if !ok || !says(text, want) { // its lines cannot be taken out one by one
		if text, err = d.written(want); err != nil {
			return nil, err
		}
	}
	d.text = text
	return all, nil
}

// restored is what was done if one of the workloads keeps what the document was, which it is again
// then.
func (d *document) restored() ([]Done, error) {
	all := d.workloads()
	tries := 0
	for _, w := range slices.Backward(all) {
		if !d.keepsOriginal(w) {
			continue
		}
		if tries++; tries > originalLimit {
			break
		}
		text, ok := d.original(w)
		if !ok {
			continue
		}
		next, err := parse(text)
		if err != nil {
			return nil, err
		}
		*d = *next
		more, err := d.remove() // what was there may have been injected, too
		if err != nil {
			return nil, err
		}
		for i, done := range more {
			if i < len(all) && at(d.object, all[i].object) != nil {
				done.Left = ""
			}
			more[i] = done
		}
		return more, nil
	}
	return nil, nil
}

// stripped is what a document says without what paths lead to, and before changes.
func (d *document) stripped(paths []string, changes []change) (any, error) {
	object, err := decode(d.json)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		object = with(object, parts(c.path), c.value)
	}
	for _, path := range slices.Backward(paths) { // later items first, whose places change otherwise
		object = without(object, parts(path))
	}
	return object, nil
}

// added are the places of what was added to a workload.
func added(object any, w workload) (all []string) {
	if kept := w.object + "/metadata/annotations/" + escape(originalAnnotation); at(object, kept) != nil {
		all = append(all, kept) // what it keeps is another document than this by now
	}
	mark := w.template + "/metadata/annotations/" + escape(InjectedAnnotation)
	if !isMarked(object, w) {
		return all
	}
	named := func(list string, names ...string) {
		for i, item := range itemsAt(object, list) {
			if name, _ := at(item, "/name").(string); slices.Contains(names, name) {
				all = append(all, fmt.Sprintf("%s/%d", list, i))
			}
		}
	}
	named(w.template+"/spec/initContainers", Container)
	named(w.template+"/spec/volumes", FilesVolume, KeyVolume, TokenVolume)
	own := ownMount(object, w) != nil
	for _, list := range []string{w.template + "/spec/initContainers", w.template + "/spec/containers"} {
		for i, c := range itemsAt(object, list) {
			if name, _ := at(c, "/name").(string); name == Container {
				continue // it goes as a whole
			}
			named(fmt.Sprintf("%s/%d/env", list, i), leadVariables...)
			for k, v := range itemsAt(c, "/env") {
				if name, _ := at(v, "/name").(string); slices.Contains(exceptVariables, name) && at(v, "/value") == excepted {
					all = append(all, fmt.Sprintf("%s/%d/env/%d", list, i, k))
				}
			}
			if !own { // or else they go back to what they were
				named(fmt.Sprintf("%s/%d/volumeMounts", list, i), FilesVolume)
			}
		}
	}
	if at(object, mark) != nil {
		all = append(all, mark)
	}
	return all
}

// isMarked reports that a workload has something that Plan has added: it says so, or it has a
// volume that all parts of a sidecar have in common. Tools drop annotations, or the sidecar alone.
func isMarked(object any, w workload) bool {
	return at(object, w.template+"/metadata/annotations/"+escape(InjectedAnnotation)) != nil ||
		slices.ContainsFunc(itemsAt(object, w.template+"/spec/volumes"), func(v any) bool {
			return at(v, "/name") == FilesVolume
		})
}

// cutAll takes the lines of some things out of a text, and with the last of a list or mapping its
// key. Each ends where the next one begins, or the comment above that. Strings are cut back to what
// they were. All places are found in one reading. It reports false if one of the things has no
// lines of its own.
func cutAll(text string, pointers []string, changes []change) (string, bool) {
	t, ok := read(text)
	if !ok {
		return "", false
	}
	gone := map[*yaml.Node]int{} // how many parts of it go; of what goes itself, all
	var cuts [][2]int
	for _, pointer := range pointers {
		path := parts(pointer)
		for len(path) > 0 { // up to where something stays
			parent := t.find(path[:len(path)-1])
			if !isBlock(parent) || t.find(path) == nil && indexOf(parent, path[len(path)-1]) < 0 {
				return "", false
			}
			gone[parent]++
			if gone[parent] < size(parent) {
				break
			}
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			return "", false
		}
	}
	for _, pointer := range pointers {
		path := parts(pointer)
		for parent := t.find(path[:len(path)-1]); gone[parent] == size(parent); parent = t.find(path[:len(path)-1]) {
			path = path[:len(path)-1]
		}
		from, to, ok := t.extent(t.find(path[:len(path)-1]), path)
		if !ok {
			return "", false
		}
		cuts = append(cuts, [2]int{from, to})
	}
	for _, c := range changes {
		cut, ok := t.cutBack(c)
		if !ok {
			return "", false
		}
		cuts = append(cuts, cut)
	}
	slices.SortFunc(cuts, func(a, b [2]int) int { return a[0] - b[0] })
	var out strings.Builder
	from := 0
	for _, cut := range slices.Compact(cuts) {
		if cut[0] < from {
			return "", false
		}
		out.WriteString(text[from:cut[0]])
		from = cut[1]
	}
	return out.String() + text[from:], true
}

// size is of how many parts a node is.
func size(n *yaml.Node) int {
	if n.Kind == yaml.MappingNode {
		return len(n.Content) / 2
	}
	return len(n.Content)
}

// extent is where the lines are of what path leads to, which parent is of.
func (t *sourceText) extent(parent *yaml.Node, path []string) (from, to int, ok bool) {
	node := t.find(path)
	if node == nil {
		return 0, 0, false
	}
	line, column := node.Line, parent.Column
	if parent.Kind == yaml.MappingNode {
		key := parent.Content[indexOf(parent, path[len(path)-1])]
		line, column = key.Line, key.Column
	}
	if !t.begins(line, column) {
		return 0, 0, false
	}
	end := line + 1
	for end <= t.lines() && !t.ends(end, column, parent.Kind == yaml.SequenceNode) {
		end++
	}
	for end > line+1 && isFiller(t.line(end-1)) {
		end--
	}
	return t.starts[line-1], t.starts[end-1], true
}

// ends reports that a line is not of what began at a column before it: something begins there, at
// this column or in front of it.
func (t *sourceText) ends(line, column int, item bool) bool {
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

// without is a tree without what a path leads to; and without what is empty then, as where it was
// added there was nothing.
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
