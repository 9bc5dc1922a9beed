package config

import (
	"encoding/json"
	"flag"
	"maps"
	"math"
	"os"
	"regexp"
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

// A template names the key for the name of a flag by the same words as the table.
func TestChartHasTheWordsOfKeys(t *testing.T) {
	text, err := os.ReadFile("../../charts/spillway/templates/_check.tpl")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "{{- define \"spillway.keyWords\" -}}\n")
	list, _, _ := strings.Cut(rest, "{{- end -}}")
	var words map[string]string
	if err := yaml.Unmarshal([]byte(list), &words); err != nil || !maps.Equal(words, keyWords) {
		t.Errorf("the template spillway.keyWords has %v, want %v: %v", words, keyWords, err)
	}
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
	return object{
		"type": "object", "additionalProperties": false, "properties": properties,
		"description": "keys of the configuration file",
		// names of flags, which were the keys: a template refuses them and names the keys
		"patternProperties": object{"-": object{"deprecated": true}},
	}
}
