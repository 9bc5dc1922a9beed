package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayBeUnsafe are the files, and folders, that may import unsafe, and why.
var mayBeUnsafe = map[string]string{
	"internal/rawio":                        "pointers for system calls",
	"internal/object/scan.go":               "strings over bytes that do not change",
	"internal/auth/authtest/clock.go":       "for tests: package time makes no Time whose two clocks differ",
	"internal/watch/delivery_linux_test.go": "a system call that deliveries are compared with",
}

// mayReflect is what files that are not tests may use of package reflect: nothing that depends on
// the layout of another package's types.
var mayReflect = []string{"DeepEqual", "TypeFor"}

// TestUnsafeAndReflectStayInTheirPlaces checks every Go file of internal/ and cmd/, whatever it is
// built for.
func TestUnsafeAndReflectStayInTheirPlaces(t *testing.T) {
	unused := maps.Clone(mayBeUnsafe)
	for _, folder := range []string{"internal", "cmd"} {
		root := filepath.Join("..", folder)
		err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() {
				return skipForeign(root, file, entry.Name())
			}
			if !strings.HasSuffix(file, ".go") {
				return nil
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name := filepath.ToSlash(strings.TrimPrefix(file, ".."+string(filepath.Separator)))
			for _, found := range unsafeUses(name, parsed) {
				t.Errorf("%s: %s", name, found)
			}
			if imports(parsed, "unsafe") {
				delete(unused, name)
				delete(unused, path.Dir(name))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for place := range unused {
		t.Errorf("%s does not import unsafe: remove it from mayBeUnsafe", place)
	}
}

// unsafeUses are the uses of unsafe and reflect in a file that are not allowed there.
func unsafeUses(name string, file *ast.File) (found []string) {
	if imports(file, "unsafe") && mayBeUnsafe[name] == "" && mayBeUnsafe[path.Dir(name)] == "" {
		found = append(found, "imports unsafe: see mayBeUnsafe in internal/unsafe_test.go")
	}
	if strings.HasSuffix(name, "_test.go") || !imports(file, "reflect") {
		return found
	}
	for _, i := range file.Imports {
		if i.Path.Value == `"reflect"` && i.Name != nil {
			found = append(found, "imports reflect by another name")
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if of, ok := s.X.(*ast.Ident); ok && of.Name == "reflect" && !slices.Contains(mayReflect, s.Sel.Name) {
				found = append(found, "uses reflect."+s.Sel.Name+": only "+strings.Join(mayReflect, ", ")+" may be used")
			}
		}
		return true
	})
	return found
}

func imports(file *ast.File, library string) bool {
	return slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"`+library+`"` })
}

// TestUnsafeUses shows what is allowed and what is not.
func TestUnsafeUses(t *testing.T) {
	f := func(name, code string, want int) {
		t.Helper()
		parsed, err := parser.ParseFile(token.NewFileSet(), name, "package p\n"+code, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if found := unsafeUses(name, parsed); len(found) != want {
			t.Errorf("%s: found %q, want %d", name, found, want)
		}
	}
	const unsafe = `import "unsafe"`
	const fields = `import "reflect"; var a, b = reflect.ValueOf(1), reflect.NewAt(nil, nil)`
	f("internal/rawio/call_linux.go", unsafe, 0)
	f("internal/object/scan.go", unsafe, 0)
	f("internal/object/parse.go", unsafe, 1)
	f("internal/watch/writer.go", unsafe, 1)
	f("internal/watch/writer_test.go", unsafe, 1)
	f("cmd/proxy/main.go", unsafe, 1)
	f("internal/watch/writer.go", fields, 2)
	f("internal/watch/writer_test.go", fields, 0)
	f("internal/watch/writer.go", `import . "reflect"; var _ = ValueOf(1)`, 1)
	f("internal/watch/writer.go", `import "reflect"; var _ = reflect.DeepEqual(1, 2)`, 0)
}
