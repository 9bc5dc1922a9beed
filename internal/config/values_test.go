package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The chart's README lists the values as values.yaml and its schema have them.
func TestChartReadmeIsMadeFromTheValues(t *testing.T) {
	const (
		chart = "../../charts/spillway"
		begin = "<!-- Made by go test ./internal/config -update: change values.yaml, not this. -->\n"
		end   = "<!-- End of what is made. -->\n"
	)
	path := filepath.Join(chart, "README.md")
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(kept), begin)
	_, tail, ends := strings.Cut(rest, end)
	if !found || !ends {
		t.Fatalf("%s lacks the lines %q and %q", path, begin, end)
	}
	made := head + begin + readValues(t, chart).tables() + "\n" + end + tail
	if *update {
		if err := os.WriteFile(path, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if made != string(kept) {
		t.Errorf("%s is not what values.yaml and its schema say: run go test ./internal/config -update", path)
	}
}

// partial are mappings of which values.yaml names some keys only, and why.
var partial = map[string]string{
	"resources":           "what of a container's resources is set by default",
	"loadShedding.limits": "those of the settings that limit clients that have another default there",
}

// The schema has a property for each value, and no other but former names.
func TestChartSchemaHasAllValues(t *testing.T) {
	v := readValues(t, "../../charts/spillway")
	var compare func(at []string, node *yaml.Node, of *property)
	compare = func(at []string, node *yaml.Node, of *property) {
		name := strings.Join(at, ".")
		if of == nil {
			t.Errorf("%s is not in the schema", name)
			return
		}
		if node.Kind != yaml.MappingNode || len(node.Content) == 0 || len(of.Properties) == 0 {
			return
		}
		var known []string
		for i := 0; i < len(node.Content); i += 2 {
			key := node.Content[i].Value
			known = append(known, key)
			compare(append(slices.Clip(at), key), node.Content[i+1], v.resolve(of.Properties[key]))
		}
		for key, p := range of.Properties {
			// What refers to a definition has fields of Kubernetes, of which values.yaml names some.
			if !slices.Contains(known, key) && !p.Deprecated && !of.isShared && partial[name] == "" {
				t.Errorf("%s.%s is in the schema and not in values.yaml", name, key)
			}
		}
	}
	compare(nil, v.root, &v.schema)
}

// Each value is explained, by itself or by what it is part of.
func TestChartValuesAreExplained(t *testing.T) {
	v := readValues(t, "../../charts/spillway")
	for _, section := range v.sections() {
		for _, r := range section.rows {
			if r.about == "" && !strings.Contains(r.name, ".") && r.name != "nameOverride" {
				t.Errorf("values.yaml does not explain %s", r.name)
			}
		}
	}
}

// chartValues are the values of the chart: the file, as text and parsed, and its schema.
type chartValues struct {
	lines  []string
	root   *yaml.Node
	schema property
}

// property is what the schema says of a value.
type property struct {
	Ref         string               `json:"$ref"`
	Type        any                  `json:"type"` // a type, or a list of types
	Enum        []any                `json:"enum"`
	Properties  map[string]*property `json:"properties"`
	Definitions map[string]*property `json:"definitions"`
	Deprecated  bool                 `json:"deprecated"`
	isShared    bool                 // it is a definition
}

func readValues(t *testing.T, chart string) *chartValues {
	t.Helper()
	v := &chartValues{}
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	v.lines = strings.Split(string(text), "\n")
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	v.root = document.Content[0]
	text, err = os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &v.schema); err != nil {
		t.Fatal(err)
	}
	for _, p := range v.schema.Definitions {
		p.isShared = true
	}
	return v
}

// resolve follows a reference to a definition.
func (v *chartValues) resolve(p *property) *property {
	if p != nil && p.Ref != "" {
		return v.schema.Definitions[strings.TrimPrefix(p.Ref, "#/definitions/")]
	}
	return p
}

// valueRow is a value, with its type and default in the notation of Markdown.
type valueRow struct{ name, kind, initially, about string }

// valueSection is a part of values.yaml, which begins with a line "## Title".
type valueSection struct {
	title string
	rows  []valueRow
}

func (v *chartValues) sections() (all []valueSection) {
	from := 0
	for i := 0; i < len(v.root.Content); i += 2 {
		key := v.root.Content[i]
		for _, line := range v.lines[from : key.Line-1] {
			if title, found := strings.CutPrefix(line, "## "); found {
				all = append(all, valueSection{title: title})
			}
		}
		from = key.Line
		last := &all[len(all)-1]
		last.rows = append(last.rows, v.rows("", key, v.root.Content[i+1], v.schema.Properties[key.Value])...)
	}
	return all
}

// rows are those of a value and of what it consists of. A mapping that has no comment has no row of
// its own.
func (v *chartValues) rows(prefix string, key, value *yaml.Node, p *property) (all []valueRow) {
	p = v.resolve(p)
	r := valueRow{name: prefix + key.Value, about: v.comment(key), kind: p.kind()}
	if r.kind == "" {
		r.kind = map[string]string{"!!str": "string", "!!map": "object", "!!seq": "array"}[value.Tag]
	}
	if value.Kind != yaml.MappingNode || len(value.Content) == 0 {
		r.initially = v.initially(value)
		return []valueRow{r}
	}
	if r.about != "" {
		all = []valueRow{r}
	}
	for i := 0; i < len(value.Content); i += 2 {
		var of *property
		if p != nil {
			of = p.Properties[value.Content[i].Value]
		}
		all = append(all, v.rows(r.name+".", value.Content[i], value.Content[i+1], of)...)
	}
	return all
}

// comment is what the lines above a key say, or the end of its line.
func (v *chartValues) comment(key *yaml.Node) string {
	var lines []string
	indent := strings.Repeat(" ", key.Column-1)
	for i := key.Line - 2; i >= 0; i-- {
		text, found := strings.CutPrefix(v.lines[i], indent+"# ")
		if !found {
			break
		}
		lines = append(lines, text)
	}
	slices.Reverse(lines)
	if _, text, found := strings.Cut(v.lines[key.Line-1], " # "); found {
		lines = append(lines, text)
	}
	return strings.Join(lines, " ")
}

// kind is what a value may be.
func (p *property) kind() string {
	if p == nil {
		return ""
	}
	if len(p.Enum) > 0 {
		var words []string
		for _, word := range p.Enum {
			if word != "" && word != nil {
				words = append(words, fmt.Sprintf("`%v`", word))
			}
		}
		return strings.Join(words, ", ")
	}
	kinds, several := p.Type.([]any)
	if !several {
		kinds = []any{p.Type}
	}
	var words []string
	for _, kind := range kinds {
		if kind != "null" && kind != nil {
			words = append(words, kind.(string))
		}
	}
	if len(p.Properties) > 0 { // other types are those of a former name
		return "object"
	}
	return strings.Join(words, " or ")
}

// initially is a default value in one line.
func (v *chartValues) initially(value *yaml.Node) string {
	var decoded any
	if err := value.Decode(&decoded); err != nil {
		return err.Error()
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		return err.Error()
	}
	return "`" + string(text) + "`"
}

// tables are a table for each section.
func (v *chartValues) tables() string {
	var b strings.Builder
	inCell := strings.NewReplacer("|", `\|`, "<", "&lt;")
	for _, section := range v.sections() {
		fmt.Fprintf(&b, "\n### %s\n\n| value | type | default | description |\n|---|---|---|---|\n", section.title)
		for _, r := range section.rows {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.name, r.kind, r.initially, inCell.Replace(r.about))
		}
	}
	return b.String()
}
