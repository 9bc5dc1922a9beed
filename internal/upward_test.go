package internal_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// upwardLimit is how many of a hundred references between the files of a package may point upward.
const upwardLimit = 10

// TestReferencesPointDownward holds the order inside packages. A reference is a use, in one file,
// of a name that another one declares, except as the receiver of a method. The files of a package
// are put into the order in which the fewest references point from a lower file to a higher one.
func TestReferencesPointDownward(t *testing.T) {
	packages := map[string]map[string]string{}
	for file, text := range texts(t, ".go") {
		if strings.HasPrefix(file, "internal/") && !strings.HasSuffix(file, "_test.go") && buildsHere(text) {
			folder := path.Dir(file)
			if packages[folder] == nil {
				packages[folder] = map[string]string{}
			}
			packages[folder][path.Base(file)] = text
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		r, err := referencesIn(packages[folder])
		if err != nil {
			t.Fatal(err)
		}
		upward, found := r.upward(r.order()), r.total()
		if upward*100 >= found*upwardLimit && upward > 1 {
			t.Errorf("%s: %d of %d references point upward, from the top: %s", folder, upward, found, r.describe())
		}
	}
}

// buildsHere reports that a file is not for other systems than Linux.
func buildsHere(text string) bool {
	line, _, _ := strings.Cut(text, "\n")
	return !strings.HasPrefix(line, "//go:build !linux")
}

// references counts, for each file, how often it uses names that other files declare.
type references map[string]map[string]int

// referencesIn finds those of a package. Names that other packages declare do not matter, so these
// are not read.
func referencesIn(files map[string]string) (references, error) {
	set := token.NewFileSet()
	var parsed []*ast.File
	r := references{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file, err := parser.ParseFile(set, name, files[name], parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed, r[name] = append(parsed, file), map[string]int{}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Error: func(error) {}, Importer: emptyImporter{}}
	checked, _ := config.Check("p", set, parsed, info) // fails: other packages are empty
	receivers := map[*ast.Ident]bool{}
	for _, file := range parsed {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				ast.Inspect(f.Recv, func(n ast.Node) bool {
					if name, ok := n.(*ast.Ident); ok {
						receivers[name] = true
					}
					return true
				})
			}
		}
	}
	for name, used := range info.Uses {
		if used.Pkg() != checked || receivers[name] {
			continue
		}
		from, to := set.Position(name.Pos()).Filename, set.Position(used.Pos()).Filename
		if from != to && to != "" {
			r[from][to]++
		}
	}
	return r, nil
}

// emptyImporter imports packages that declare nothing.
type emptyImporter struct{}

func (emptyImporter) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}

func (r references) total() (n int) {
	for _, to := range r {
		for _, count := range to {
			n += count
		}
	}
	return n
}

// upward is how many references point from a file to one that is earlier in an order.
func (r references) upward(order []string) (n int) {
	for i, from := range order {
		for _, to := range order[:i] {
			n += r[from][to]
		}
	}
	return n
}

// order puts files that use others ahead of these: a file moves as long as that turns an upward
// reference downward.
func (r references) order() []string {
	order := slices.Sorted(maps.Keys(r))
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(r[b][a], r[a][b]) })
	for improved := true; improved; {
		improved = false
		for i := range order {
			for j := range order {
				moved := slices.Clone(order)
				file := moved[i]
				moved = slices.Insert(slices.Delete(moved, i, i+1), j, file)
				if r.upward(moved) < r.upward(order) {
					order, improved = moved, true
				}
			}
		}
	}
	return order
}

// describe lists files in their order, and the upward references.
func (r references) describe() string {
	order := r.order()
	text := strings.Join(order, ", ")
	for i, from := range order {
		for _, to := range order[:i] {
			if n := r[from][to]; n > 0 {
				text += fmt.Sprintf("; %s uses %s %d times", from, to, n)
			}
		}
	}
	return text
}

// TestReferences shows which references count, and which of them point upward.
func TestReferences(t *testing.T) {
	r, err := referencesIn(map[string]string{
		"top.go":    "package p\nimport \"fmt\"\nfunc top() { low(); low(); fmt.Println(kind(1)) }",
		"low.go":    "package p\ntype kind int\nfunc low() { var k kind; k.show() }",
		"method.go": "package p\nfunc (k kind) show() { top() }",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := references{"top.go": {"low.go": 3}, "low.go": {"method.go": 1}, "method.go": {"top.go": 1}}
	if fmt.Sprint(r) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", r, want)
	}
	if order, upward := r.order(), r.upward(r.order()); upward != 1 || r.total() != 5 || order[len(order)-1] == "top.go" {
		t.Errorf("%d of %d upward in %v", upward, r.total(), order)
	}
}
