package internal_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mention is a kind of name that texts of all kinds use for things of this repository.
type mention struct {
	kind string
	in   *regexp.Regexp // finds mentions; its last group is the name
	// notIn are files that name such things of another time or another repository, or that declare
	// them: by the ends of their names.
	notIn []string
}

var mentions = []mention{
	{kind: "path", in: regexp.MustCompile(
		`(?:^|[^\w./~$}-])((?:internal|cmd|charts|bench|docs|test|hack)/[\w.-]+(?:/[\w.-]+)*)(?:$|[^*\w/.-])`),
		notIn: []string{"_test.go"}},
	{kind: "metric", in: regexp.MustCompile(`\b(spillway_[a-z0-9]+(?:_[a-z0-9]+)*)\b(?:$|[^.{/*…_-])`),
		notIn: []string{"_test.go", "CHANGELOG.md"}},
	{kind: "target", in: regexp.MustCompile("`make ([a-z][a-z-]*)[ `]"), notIn: []string{"_test.go"}},
	{kind: "test", in: regexp.MustCompile(`\b((?:Test|Fuzz|Benchmark)[A-Z]\w+)\b`),
		notIn: []string{".go", "docs/protocol.md"}},
}

// TestNamesExist finds every path, metric, target of make and test that comments, documents,
// settings, templates and pictures name.
func TestNamesExist(t *testing.T) {
	files := texts(t, ".go", ".md", ".yaml", ".yml", ".json", ".svg", ".tpl", ".txt", ".sh", ".mk", "Makefile",
		"Dockerfile")
	known := newKnownNames(files)
	found := map[string]int{}
	for file, text := range files {
		for _, m := range mentions {
			if slices.ContainsFunc(m.notIn, func(end string) bool { return strings.HasSuffix(file, end) }) {
				continue
			}
			for _, name := range m.find(text) {
				if found[m.kind]++; !known.has(m.kind, name) {
					t.Errorf("%s names the %s %s, which does not exist", file, m.kind, name)
				}
			}
		}
	}
	for _, m := range mentions {
		if found[m.kind] < 50 {
			t.Errorf("only %d names of the kind %s were found", found[m.kind], m.kind)
		}
	}
}

func (m mention) find(text string) (names []string) {
	for _, match := range m.in.FindAllStringSubmatch(text, -1) {
		names = append(names, strings.TrimRight(match[1], "."))
	}
	return names
}

// knownNames are those of one repository, by kind.
type knownNames map[string]map[string]bool

var (
	declaredMetric = regexp.MustCompile("(?m)^\\| `(spillway_\\w+)` ")
	declaredTarget = regexp.MustCompile(`(?m)^([a-z][a-z -]*):(?:[^=]|$)`)
	// measures finds the programs that have a target each.
	measures     = regexp.MustCompile(`(?m)^MEASURES := (.*)$`)
	declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
)

// newKnownNames are those that files declare.
func newKnownNames(files map[string]string) knownNames {
	known := knownNames{"metric": {}, "target": {}, "test": {}}
	for file, text := range files {
		switch {
		case file == "docs/metrics.md":
			for _, match := range declaredMetric.FindAllStringSubmatch(text, -1) {
				known["metric"][match[1]] = true
			}
		case path.Base(file) == "Makefile" || path.Ext(file) == ".mk":
			for _, match := range declaredTarget.FindAllStringSubmatch(text, -1) {
				for target := range strings.FieldsSeq(match[1]) {
					known["target"][target] = true
				}
			}
			for _, match := range measures.FindAllStringSubmatch(text, -1) {
				for program := range strings.FieldsSeq(match[1]) {
					known["target"]["bench-"+program] = true
				}
			}
		case strings.HasSuffix(file, "_test.go"):
			for _, match := range declaredTest.FindAllStringSubmatch(text, -1) {
				known["test"][match[1]] = true
			}
		}
	}
	return known
}

// has reports that a name exists. A path may name a Go file without its ending. A histogram has
// three series. A metric and a test may be named by their beginnings, as for grep and for -run.
func (k knownNames) has(kind, name string) bool {
	switch kind {
	case "path":
		for _, file := range []string{name, name + ".go"} {
			if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(file))); err == nil {
				return true
			}
		}
		return false
	case "metric", "test":
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			name = strings.TrimSuffix(name, suffix)
		}
		for declared := range k[kind] {
			if strings.HasPrefix(declared, name) {
				return true
			}
		}
		return false
	}
	return k[kind][name]
}

// TestNames shows which names exist and which do not.
func TestNames(t *testing.T) {
	known := newKnownNames(map[string]string{
		"docs/metrics.md": "| `spillway_a_seconds` | histogram |\n", "Makefile": "test unit: all ## Test\nx := y\n",
		"bench/bench.mk": "MEASURES := list\n", "a/a_test.go": "func TestItHolds(t *testing.T) {}\n",
	})
	for text, want := range map[string]string{
		"See internal/names_test.go, `internal/nothing`. And docs/design/.": "path internal/nothing",
		"github.com/x/docs/none, ./test/none, docs/*.md":                    "",
		"spillway_a_seconds_bucket, spillway_a, spillway_b":                 "metric spillway_b",
		"spillway_…, spillway_b{x=1}":                                       "",
		"`make unit`, `make bench-list`, `make x`, `make test ARGS=1`":      "target x",
		"`TestItHolds`, -run TestIt, TestItFails":                           "test TestItFails",
	} {
		var missing []string
		for _, m := range mentions {
			for _, name := range m.find(text) {
				if !known.has(m.kind, name) {
					missing = append(missing, m.kind+" "+name)
				}
			}
		}
		if got := strings.Join(missing, ", "); got != want {
			t.Errorf("%q: %q does not exist, want %q", text, got, want)
		}
	}
}
