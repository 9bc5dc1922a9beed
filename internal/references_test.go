package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
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
	{name: "deviation", in: regexp.MustCompile(`\b((?:DEV|N)-[0-9]+)\b`), pages: "docs/deviations.md"},
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
	f("as DEV-11 and N-5 say", "DEV-11", "N-5")
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
			if path != root && (strings.HasPrefix(name, ".") && name != ".github" ||
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

var (
	// quoted finds what Markdown shows as code.
	quoted = regexp.MustCompile("`([^`\n]+)`")
	// filePath is a Go file, with its last folders or without.
	filePath = regexp.MustCompile(`^[\w/.-]+\.go$`)
	// goName is a name of Go code: alone, or after its type, its package or both.
	goName = regexp.MustCompile(`^[A-Za-z]\w*(?:\.[A-Za-z]\w*){0,2}$`)
)

// notDeclared are names that ARCHITECTURE.md shows as code and that no Go file declares, and what
// they are.
var notDeclared = map[string]string{
	"D1": "a decision", "D33": "a decision",
	"fasthttp": "a module", "unsafe": "a package of Go",
	"portable": "a build tag", "sendto": "a system call", "slow_client_stalled": "a label",
	"spillway_watch_terminations_total": "a metric", "spillway_dispatch_stalls_total": "a metric",
}

// TestArchitectureNamesWhatExists finds every Go file, function, method, field, type and folder
// that ARCHITECTURE.md names.
func TestArchitectureNamesWhatExists(t *testing.T) {
	files := texts(t, ".go", ".md")
	code := newDeclarations()
	for file, text := range files {
		if strings.HasSuffix(file, ".go") {
			if err := code.add(file, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	paths, names, needless := 0, 0, maps.Clone(notDeclared)
	for _, found := range quoted.FindAllStringSubmatch(files["ARCHITECTURE.md"], -1) {
		name := found[1]
		delete(needless, name)
		switch {
		case filePath.MatchString(name):
			if paths++; !code.hasFile(name) {
				t.Errorf("ARCHITECTURE.md names the file %s, which does not exist", name)
			}
		case goName.MatchString(name) && notDeclared[name] == "":
			if names++; !code.has(name) {
				t.Errorf("ARCHITECTURE.md names %s, which no Go file declares", name)
			}
		}
	}
	for name := range needless {
		t.Errorf("ARCHITECTURE.md does not name %s: remove it from notDeclared", name)
	}
	if paths < 60 || names < 100 {
		t.Errorf("only %d files and %d names were found", paths, names)
	}
}

// walks are the chapters of ARCHITECTURE.md that lead from socket to socket, with the most files
// that their numbered steps may name.
var walks = map[string]int{"A watch event, step by step": 20, "A LIST, step by step": 25}

// TestWalksAreShort holds how many files must be read to follow an event or a LIST.
func TestWalksAreShort(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for title, most := range walks {
		_, chapter, found := strings.Cut(string(text), "\n## "+title+"\n")
		if !found {
			t.Fatalf("ARCHITECTURE.md has no chapter %q", title)
		}
		chapter, _, _ = strings.Cut(chapter, "\n## ")
		files := map[string]bool{}
		for paragraph := range strings.SplitSeq(chapter, "\n\n") {
			if !strings.HasPrefix(strings.TrimSpace(paragraph), "1. ") {
				continue
			}
			for _, found := range quoted.FindAllStringSubmatch(paragraph, -1) {
				if filePath.MatchString(found[1]) {
					files[found[1]] = true
				}
			}
		}
		if len(files) > most || len(files) < most/2 {
			t.Errorf("%q names %d files, want at most %d: %v", title, len(files), most, slices.Sorted(maps.Keys(files)))
		}
	}
}

// declarations is what the Go files of the repository declare.
type declarations struct {
	files    []string                   // their paths, after a slash
	packages map[string]bool            // by their names and by those of their folders
	names    map[string]bool            // functions, methods, fields, types, variables and constants
	members  map[string]map[string]bool // methods and fields, by the name of their type
}

func newDeclarations() *declarations {
	return &declarations{
		packages: map[string]bool{}, names: map[string]bool{}, members: map[string]map[string]bool{},
	}
}

// add notes what a file declares outside of its functions.
func (d *declarations) add(file, text string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	d.files = append(d.files, "/"+file)
	d.packages[parsed.Name.Name] = true
	for _, folder := range strings.Split(path.Dir(file), "/") {
		d.packages[folder] = true
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			d.names[n.Name.Name] = true
			if n.Recv != nil {
				d.member(receiver(n.Recv.List[0].Type), n.Name.Name)
			}
			return false
		case *ast.ValueSpec:
			for _, name := range n.Names {
				d.names[name.Name] = true
			}
		case *ast.TypeSpec:
			d.names[n.Name.Name] = true
			d.within(n.Name.Name, n.Type)
		}
		return true
	})
	return nil
}

// within notes the fields of a struct and the methods of an interface.
func (d *declarations) within(of string, t ast.Expr) {
	var list *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			d.member(of, name.Name)
		}
	}
}

// member notes a method or a field of a type.
func (d *declarations) member(of, name string) {
	d.names[name] = true
	if d.members[of] == nil {
		d.members[of] = map[string]bool{}
	}
	d.members[of][name] = true
}

// receiver is the name of a method's type.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// hasFile reports that there is a file whose path ends in this one.
func (d *declarations) hasFile(name string) bool {
	return slices.ContainsFunc(d.files, func(file string) bool { return strings.HasSuffix(file, "/"+name) })
}

// has reports that a name is declared: by its type, if it follows one. For a name that follows a
// package, any declaration will do: TestNamesInDocumentsAreDeclared checks the package.
func (d *declarations) has(name string) bool {
	parts := strings.Split(name, ".")
	switch len(parts) {
	case 1:
		return d.names[name] || d.packages[name]
	case 2:
		return d.members[parts[0]][parts[1]] || d.packages[parts[0]] && d.names[parts[1]]
	}
	return d.packages[parts[0]] && d.members[parts[1]][parts[2]]
}

// TestDeclarations shows which names are declared and which are not.
func TestDeclarations(t *testing.T) {
	code := newDeclarations()
	err := code.add("internal/shop/till.go", `package shop
type till struct{ coins int; mu struct{ open bool } }
type drawer[T any] interface{ pull(T) }
func (t *till) pay() { change := 1; _ = change }
func (d box[T]) shut() {}
const most = 3
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"shop", "till", "till.coins", "till.mu", "till.pay", "shop.till.pay", "drawer.pull", "pay", "box.shut", "shop.most",
	} {
		if !code.has(name) {
			t.Errorf("%s is not declared", name)
		}
	}
	for _, name := range []string{
		"change", "left", "till.shut", "shop.till.shut", "drawer.pay", "bank.till.pay", "shops.till",
	} {
		if code.has(name) {
			t.Errorf("%s is declared", name)
		}
	}
	for name, want := range map[string]bool{
		"till.go": true, "shop/till.go": true, "ill.go": false, "bank/till.go": false,
	} {
		if code.hasFile(name) != want {
			t.Errorf("the file %s exists: %t, want %t", name, !want, want)
		}
	}
}
