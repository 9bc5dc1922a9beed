package internal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// citation is a family of identifiers that code and documents cite.
type citation struct {
	name string
	// in finds citations; its last group is the identifier.
	in    *regexp.Regexp
	pages string // those with an anchor for each: a glob, relative to the repository
}

var citations = []citation{
	{name: "rule", in: regexp.MustCompile(`\b(W-[0-9]+[a-z]?)\b`), pages: "docs/protocol.md"},
	{name: "deviation", in: regexp.MustCompile(`\b([DN]-[0-9]+)\b`), pages: "docs/deviations.md"},
	{name: "decision", in: regexp.MustCompile(`\b(D[0-9]+a?)\b`), pages: "docs/design/*.md"},
}

// TestCitationsResolve finds every rule, deviation and decision that Go files of all modules,
// charts and documents cite in the page that explains it.
func TestCitationsResolve(t *testing.T) {
	anchors := map[string]bool{} // name and identifier
	for _, c := range citations {
		for _, id := range anchorsOf(t, filepath.Join("..", filepath.FromSlash(c.pages))) {
			anchors[c.name+" "+id] = true
		}
	}
	cited := 0
	for file, text := range texts(t, ".go", ".md", ".yaml", ".tpl", ".txt", ".sh", "Makefile") {
		for _, c := range citations {
			for _, found := range c.in.FindAllStringSubmatch(text, -1) {
				id := found[len(found)-1]
				if cited++; !anchors[c.name+" "+strings.ToLower(id)] {
					t.Errorf("%s cites %s %s, which has no anchor in %s", file, c.name, id, c.pages)
				}
			}
		}
	}
	if cited < 1000 {
		t.Errorf("only %d citations were found", cited)
	}
}

// TestCitations shows what is a citation and what is not.
func TestCitations(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		var got []string
		for _, c := range citations {
			for _, found := range c.in.FindAllStringSubmatch(text, -1) {
				got = append(got, found[len(found)-1])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("citations of %q are %q, want %q", text, got, want)
		}
	}
	f("// too old (W-107, W-211c) and [W-68].", "W-107", "W-211c", "W-68")
	f("NEW-1 W-n W-")
	f("as D-11 and N-5 say", "D-11", "N-5")
	f("(design D5, D10a): 2D3, D and MD5", "D5", "D10a")
}

var anchor = regexp.MustCompile(`<a id="([^"]+)"></a>`)

// anchorsOf are the HTML anchors of the files that a glob names.
func anchorsOf(t *testing.T, glob string) (ids []string) {
	t.Helper()
	files, err := filepath.Glob(glob)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range anchor.FindAllStringSubmatch(string(text), -1) {
			ids = append(ids, found[1])
		}
	}
	return ids
}

// texts are the files of the repository, all modules included, whose names end in one of these, by
// their path in it. What is built and what tests read is left out.
func texts(t *testing.T, endings ...string) map[string]string {
	t.Helper()
	all, root := map[string]string{}, ".."
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") ||
				slices.Contains([]string{"bin", "dist", "node_modules", "testdata", "vendor"}, name)) {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.ContainsFunc(endings, func(end string) bool { return strings.HasSuffix(name, end) }) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(root, path)
		all[filepath.ToSlash(inside)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	// citedName finds `package.Name` and `package.Type.Method` in Markdown.
	citedName = regexp.MustCompile("`([a-z0-9]+)\\.([A-Za-z]\\w*)(?:\\.\\w+)*`")
	// declaredName finds what a file declares: names at its top level, methods, and fields or members
	// of groups, which are indented once.
	declaredName = regexp.MustCompile(`(?m)^(?:\t|type |func (?:\([^)]*\) )?|var |const )([A-Za-z]\w*)`)
	packageName  = regexp.MustCompile(`(?m)^package (\w+)`)
)

// TestNamesInDocumentsAreDeclared finds every `package.Name` of a package below internal/ that the
// pages about the code name.
func TestNamesInDocumentsAreDeclared(t *testing.T) {
	declared := map[string]map[string]bool{} // by package
	files := texts(t, ".go", ".md")
	for file, text := range files {
		if !strings.HasPrefix(file, "internal/") || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		in := packageName.FindStringSubmatch(text)[1]
		if declared[in] == nil {
			declared[in] = map[string]bool{}
		}
		for _, found := range declaredName.FindAllStringSubmatch(text, -1) {
			declared[in][found[1]] = true
		}
	}
	cited := 0
	for file, text := range files {
		if !strings.HasPrefix(file, "docs/design/") && file != "ARCHITECTURE.md" && file != "docs/events-way.md" {
			continue
		}
		for _, found := range citedName.FindAllStringSubmatch(text, -1) {
			names := declared[found[1]]
			if names == nil || found[2] == "go" {
				continue
			}
			if cited++; !names[found[2]] {
				t.Errorf("%s names %s, which package %s does not declare", file, found[0], found[1])
			}
		}
	}
	if cited < 20 {
		t.Errorf("only %d names were found", cited)
	}
}
