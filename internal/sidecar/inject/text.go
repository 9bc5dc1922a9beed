package inject

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	k8syaml "sigs.k8s.io/yaml"
)

// insertAll does a patch to the text of a document by inserting whole lines, whose places are all
// found in one reading. It reports false if that cannot be: where YAML is written in JSON's manner,
// has null in the place of a list, or something is to be replaced by more than a longer text.
func insertAll(text string, p Patch) (string, bool) {
	t, ok := read(text)
	if !ok {
		return "", false
	}
	var all []insertion
	prepended := map[string]int{} // items in front of a list, by its path
	for _, o := range p {
		path := parts(o.Path)
		if len(path) == 0 || !t.isBefore(path, prepended) {
			return "", false
		}
		insert := t.insert
		if o.Op != "add" {
			insert = t.extend
		}
		i, ok := insert(path, o.Value)
		if !ok {
			return "", false
		}
		if list, isItem := strings.CutSuffix(o.Path, "/0"); isItem {
			prepended[list]++
		}
		all = append(all, i)
	}
	slices.Reverse(all) // of what begins at the same place the last is in front
	slices.SortStableFunc(all, func(a, b insertion) int { return a.offset - b.offset })
	var out strings.Builder
	from := 0
	for _, i := range all {
		out.WriteString(text[from:i.offset] + i.lines)
		from = i.offset
	}
	return out.String() + text[from:], true
}

// insertion is lines at a place of a text.
type insertion struct {
	offset int
	lines  string
}

// isBefore changes a path to what it was before items were prepended to lists. It reports false if
// it leads into one of those.
func (t *sourceText) isBefore(path []string, prepended map[string]int) bool {
	list := ""
	for i, part := range path {
		if n := prepended[list]; n > 0 && i < len(path)-1 {
			index, err := strconv.Atoi(part)
			if err != nil || index < n {
				return false
			}
			path[i] = strconv.Itoa(index - n)
		}
		list += "/" + escape(part)
	}
	return true
}

// insert adds one thing in front of one that is there, at its indentation, and in front of the
// comment above that. So it is found again without knowing what was inserted: it ends where the
// next thing begins.
func (t *sourceText) insert(path []string, what any) (insertion, bool) {
	key := path[len(path)-1]
	parent := t.find(path[:len(path)-1])
	if !isBlock(parent) {
		return insertion{}, false
	}
	var line, column int
	var value any
	ok := false
	if parent.Kind == yaml.SequenceNode {
		line, column, value = parent.Line, parent.Column, []any{what}
		ok = key == "0" && t.begins(line, column)
	} else {
		value = map[string]any{key: what}
		ok = child(parent, key) == nil
		if next := t.neighbour(parent); next != nil {
			line, column = next.Line, next.Column
		}
	}
	if !ok || line == 0 {
		return insertion{}, false
	}
	lines, ok := render(value, column-1, t.lineEnd(line))
	return insertion{t.starts[t.aboveComments(line, column)-1], lines}, ok
}

// extend gives a string a longer value, if it is written on one line as what it says.
func (t *sourceText) extend(path []string, what any) (insertion, bool) {
	node := t.find(path)
	long, isText := what.(string)
	if node == nil || !isText {
		return insertion{}, false
	}
	more, isLonger := strings.CutPrefix(long, node.Value)
	end, ok := t.endOf(node)
	return insertion{end, more}, ok && isLonger
}

// endOf is where a scalar ends that is written on one line as what it says: in front of its quote,
// if it has one.
func (t *sourceText) endOf(node *yaml.Node) (int, bool) {
	quote := map[yaml.Style]string{0: "", yaml.DoubleQuotedStyle: `"`, yaml.SingleQuotedStyle: "'"}
	q, ok := quote[node.Style]
	from := t.starts[node.Line-1] + node.Column - 1
	if !ok || node.Kind != yaml.ScalarNode || from > len(t.text) || !strings.HasPrefix(t.text[from:], q+node.Value+q) {
		return 0, false
	}
	return from + len(q) + len(node.Value), true
}

// render is a value in YAML, indented.
func render(value any, indent int, lineEnd string) (string, bool) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", false
	}
	if text, err = k8syaml.JSONToYAML(text); err != nil {
		return "", false
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		out.WriteString(strings.Repeat(" ", indent) + strings.TrimSuffix(line, "\n") + lineEnd)
	}
	return out.String(), true
}

// sourceText is a text with what it says, to be found by line and column.
type sourceText struct {
	text   string
	root   *yaml.Node
	starts []int // of lines, and the end
}

func read(text string) (*sourceText, bool) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil || len(root.Content) == 0 {
		return nil, false
	}
	return &sourceText{text, root.Content[0], lineStarts(text)}, true
}

// lineStarts are the places where lines begin, and the end of the text. Lines end where YAML's do.
func lineStarts(text string) []int {
	starts := []int{0}
	for i, r := range text {
		switch {
		case r == '\n', r == '\r' && !strings.HasPrefix(text[i+1:], "\n"):
			starts = append(starts, i+1)
		case r == '\u0085':
			starts = append(starts, i+2)
		case r == '\u2028', r == '\u2029':
			starts = append(starts, i+3)
		}
	}
	if starts[len(starts)-1] != len(text) {
		starts = append(starts, len(text))
	}
	return starts
}

// lineEnds is how many lines end in a text.
func lineEnds(text string) int { return len(lineStarts(text+".")) - 2 }

func (t *sourceText) line(n int) string { return t.text[t.starts[n-1]:t.starts[n]] }

// lines is how many there are.
func (t *sourceText) lines() int { return len(t.starts) - 1 }

func (t *sourceText) lineEnd(n int) string {
	if strings.HasSuffix(t.line(n), "\r\n") {
		return "\r\n"
	}
	return "\n"
}

// begins reports that there is nothing but spaces in front of a column.
func (t *sourceText) begins(line, column int) bool {
	text := t.line(line)
	return len(text) >= column && strings.TrimLeft(text[:column-1], " ") == ""
}

// aboveComments is the first line of the comment that belongs to what begins at line and column, or
// that line.
func (t *sourceText) aboveComments(line, column int) int {
	for line > 1 {
		above := t.line(line - 1)
		if text := strings.TrimLeft(above, " "); !strings.HasPrefix(text, "#") || len(above)-len(text) != column-1 {
			break
		}
		line--
	}
	return line
}

// find is the node at a path of keys and indices; nil if there is none, or if it is written in a
// manner that cannot be added to.
func (t *sourceText) find(path []string) *yaml.Node {
	node := t.root
	for _, part := range path {
		if !isBlock(node) {
			return nil
		}
		if node.Kind == yaml.MappingNode {
			node = child(node, part)
			continue
		}
		i, err := strconv.Atoi(part)
		if err != nil || i >= len(node.Content) {
			return nil
		}
		node = node.Content[i]
	}
	return node
}

// isBlock reports that a node is a mapping or a list, with a line for each of its parts.
func isBlock(n *yaml.Node) bool {
	return n != nil && (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && n.Style&yaml.FlowStyle == 0
}

// child is the value of a key; nil if there is none.
func child(mapping *yaml.Node, key string) *yaml.Node {
	if i := indexOf(mapping, key); i >= 0 {
		return mapping.Content[i+1]
	}
	return nil
}

func indexOf(mapping *yaml.Node, key string) int {
	if mapping.Kind != yaml.MappingNode {
		return -1
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key && mapping.Content[i].Kind == yaml.ScalarNode {
			return i
		}
	}
	return -1
}

// first are keys that people read before those that are inserted.
var first = []string{"apiVersion", "kind", "metadata", "name", "image", "imagePullPolicy", "command", "args", "labels"}

// neighbour is the key of a mapping in front of which another is inserted: one at the beginning of
// its line, and where there is a choice one that does not tell what the whole is. nil: there is
// none.
func (t *sourceText) neighbour(mapping *yaml.Node) *yaml.Node {
	var last *yaml.Node
	for i := 0; i < len(mapping.Content); i += 2 {
		key := mapping.Content[i]
		if key.Kind != yaml.ScalarNode || !t.begins(key.Line, key.Column) {
			continue
		}
		last = key
		if !slices.Contains(first, key.Value) {
			return key
		}
	}
	return last
}
