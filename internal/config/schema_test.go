package config

import (
	"encoding/json"
	"flag"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "rewrite the settings in the schema of the chart's values")

// What the schema of the chart's values says of settings is what the table says, and nothing else.
func TestChartSchemaIsMadeFromTheTable(t *testing.T) {
	const path = "../../charts/spillway/values.schema.json"
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	made := string(kept)
	for _, g := range New().table() {
		if g.name == "Limits of clients" {
			made = replaceProperty(t, made, "limits", strings.Repeat("  ", 4), schemaOf(t, g.rows, true))
		}
	}
	made = replaceProperty(t, made, "config", strings.Repeat("  ", 2), schemaOf(t, New().rows, false))
	if *update {
		if err := os.WriteFile(path, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if made != string(kept) {
		t.Errorf("%s is not what the table says: run go test ./internal/config -update", path)
	}
}

// The chart names the keys of flags, which were the keys, as the table does.
func TestChartHasTheKeysOfFlags(t *testing.T) {
	const path = "../../charts/spillway/templates/_settings.tpl"
	var text strings.Builder
	text.WriteString("{{- /* Made by go test ./internal/config -update. The flags of Spillway, and the keys of its " +
		"configuration file. */ -}}\n{{- define \"spillway.flags\" -}}\n")
	for _, s := range New().rows {
		if s.key() != "" {
			text.WriteString(s.name + ": " + s.key() + "\n")
		}
	}
	text.WriteString("{{- end -}}\n\n{{- /* The keys that loadShedding.limits may have. */ -}}\n" +
		"{{- define \"spillway.limits\" -}}\n")
	for _, g := range New().table() {
		if g.name == "Limits of clients" {
			for _, s := range g.rows {
				text.WriteString("- " + s.key() + "\n")
			}
		}
	}
	text.WriteString("{{- end -}}\n")
	if *update {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile(path); err != nil || string(kept) != text.String() {
		t.Errorf("%s is not what the table says: run go test ./internal/config -update: %v", path, err)
	}
}

// The chart knows each former name of a flag of the proxy that CHANGELOG.md lists, and what it is
// now.
func TestChartKnowsFormerNamesOfFlags(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, s := range New().rows {
		keys[s.name] = s.key()
	}
	former := formerSettings(t)
	renamed := regexp.MustCompile("(?m)^\\| `--([a-z0-9-]+)(?:=[a-z]+)?` \\| (.*) \\|$")
	rows := renamed.FindAllStringSubmatch(string(text), -1)
	for _, row := range rows {
		now := []string{}
		if !strings.HasPrefix(row[2], "none:") {
			for _, flag := range regexp.MustCompile("`--([a-z0-9-]+)`").FindAllStringSubmatch(row[2], -1) {
				now = append(now, keys[flag[1]])
			}
		}
		if got, ok := former[row[1]]; !ok || !slices.Equal(got, now) {
			t.Errorf("the template spillway.formerSettings has %v for --%s, want %v", got, row[1], now)
		}
	}
	if len(rows) < 13 {
		t.Errorf("%d rows found", len(rows))
	}
	for name, now := range former {
		if _, ok := keys[name]; ok || !strings.Contains(string(text), "`--"+name) {
			t.Errorf("--%s is a flag of today, or CHANGELOG.md does not name it", name)
		}
		for _, key := range now {
			if !slices.Contains(slices.Collect(maps.Values(keys)), key) {
				t.Errorf("--%s: there is no key %s", name, key)
			}
		}
	}
}

// formerSettings are the former names of flags in the chart, and the keys of what they are now.
func formerSettings(t *testing.T) (names map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("../../charts/spillway/templates/_check.tpl")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "{{- define \"spillway.formerSettings\" -}}\n")
	list, _, _ := strings.Cut(rest, "{{- end -}}")
	if err := yaml.Unmarshal([]byte(list), &names); err != nil {
		t.Fatal(err)
	}
	return names
}

// replaceProperty replaces a property that is indented as told, and alone in that.
func replaceProperty(t *testing.T, schema, name, indent string, by any) string {
	t.Helper()
	found := regexp.MustCompile(`(?ms)^` + indent + `"` + name + `": \{$.*?^` + indent + `\}`)
	if n := len(found.FindAllString(schema, -1)); n != 1 {
		t.Fatalf("%q: %d properties", name, n)
	}
	text, err := json.MarshalIndent(by, indent, "  ")
	if err != nil {
		t.Fatal(err)
	}
	return found.ReplaceAllLiteralString(schema, indent+`"`+name+`": `+string(text))
}

// schemaOf is an object whose keys are settings; each may be null, if that unsets a default.
func schemaOf(t *testing.T, rows []*setting, null bool) any {
	t.Helper()
	type object = map[string]any
	properties := object{}
	for _, s := range rows {
		f := New().flags.Lookup(s.name)
		var kinds []string
		one := object{"description": New().inKeys(strings.ReplaceAll(s.usage(), "`", ""))}
		switch f.Value.Type() {
		case "bool":
			kinds = []string{"boolean"}
		case "int":
			kinds = []string{"integer"}
		case "float64":
			// --set of Helm makes a string of a fraction.
			kinds, one["pattern"] = []string{"number", "string"}, "^[0-9]+([.][0-9]+)?$"
		case "bytes":
			kinds, one["pattern"] = []string{"string", "integer"}, "^[0-9.]+([eE][0-9]+|[kMGTPE]|[KMGTPE]i)?$"
		case "duration":
			kinds, one["pattern"] = []string{"string"}, "^(0|([0-9.]+(ns|us|µs|ms|s|m|h))+)$"
		case "stringSlice":
			kinds, one["items"] = []string{"array"}, object{"type": "string"}
		case "string":
			kinds = []string{"string"}
		default:
			kinds, one["enum"] = []string{"string"}, s.words
		}
		if _, ok := s.value.(*time.Duration); !ok && s.bounds() != "" {
			one["minimum"] = 0
			if s.zero == "" {
				one["minimum"] = math.Ceil(measure(s.least))
			}
		}
		if s.most != "" {
			one["maximum"] = measure(s.most)
		}
		one["type"] = kinds[0]
		if null {
			kinds = append(kinds, "null")
		}
		if len(kinds) > 1 {
			one["type"] = kinds
		}
		properties[s.key()] = one
	}
	delete(properties, "") // a file cannot name another
	old := []string{"-"}
	for name := range formerSettings(t) {
		if !strings.Contains(name, "-") {
			old = append(old, "^"+name+"$")
		}
	}
	slices.Sort(old)
	return object{
		"type": "object", "additionalProperties": false, "properties": properties,
		"description": "keys of the configuration file",
		// names of flags, which were the keys, also former ones: a template names the keys of today
		"patternProperties": object{strings.Join(old, "|"): object{"deprecated": true}},
	}
}
