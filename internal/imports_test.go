package internal_test

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "spillway"

// mayImport is, for each package below internal/, the packages below internal/ that it may import:
// dependencies go one way, so that each can be understood, tested and replaced without what is
// above it. Folders inside a package follow its rule, and may import each other. A folder with an
// entry of its own is a room: it may import what that names, and of its house nothing else.
var mayImport = map[string][]string{
	"object":       {},
	"ring":         {},
	"rawio":        {},
	"cache":        {"object", "ring"},
	"codec":        {"object"},
	"fanout":       {"cache", "codec", "object", "ring", "websocket"},
	"backfill":     {"cache", "fanout", "object"},
	"rotation":     {},
	"domain":       {},
	"timerheap":    {},
	"editdistance": {},
	"quantity":     {},
	"websocket":    {},
	"metric":       {},
	"watchdog":     {},
	"upstream":     {"object", "upstream/capabilities", "upstream/transport", "upstream/wire", "watchdog"},
	"requestinfo":  {},

	"upstream/capabilities": {},
	"upstream/discovery":    {"editdistance", "object", "upstream", "upstream/transport", "upstream/wire"},
	"upstream/probes":       {"object", "upstream", "upstream/transport", "upstream/wire"},
	"upstream/transport":    {"rawio", "rotation"},
	"upstream/upstreamtest": {"fakeapiserver", "upstream", "upstream/transport"},
	"upstream/wire":         {"object"},

	"auth": {
		"flowcontrol", "metric", "object", "requestinfo", "rotation", "timerheap", "tlsconn", "watchdog",
	},
	"mirror": {
		"backfill", "cache", "codec", "fanout", "freshness", "health", "memory", "object", "source", "status",
		"upstream", "watchdog",
	},
	"listen":  {"rotation", "tlsconn"},
	"tlsconn": {},
	"logging": {},
	"memory":  {},
	"health":  {"status"},
	"config":  {"domain", "editdistance", "listen", "quantity", "rotation"},
	"report": {
		"flowcontrol", "memory", "mirror", "object", "rotation", "serve", "source", "status", "watch", "watchdog",
	},
	"admin":       {"apistatus", "auth", "health", "listen", "status", "tlsconn"},
	"h2":          {},
	"audit":       {"auth", "metric"},
	"tracing":     {"auth"},
	"apistatus":   {"codec", "object"},
	"flowcontrol": {"metric", "object", "timerheap"},
	"clientconn":  {"apistatus", "flowcontrol", "h2", "metric", "rawio", "ring", "tlsconn"},
	"freshness":   {"cache"},
	"source":      {"apistatus", "backfill", "cache", "codec", "fanout", "freshness", "object"},
	"plan":        {"apistatus", "object", "requestinfo", "source"},
	"watch": {
		"apistatus", "auth", "backfill", "cache", "clientconn", "codec", "fanout", "flowcontrol", "h2",
		"metric", "object", "plan", "rawio", "ring", "source", "timerheap", "watchdog", "websocket",
	},
	"passthrough": {"apistatus", "auth", "clientconn", "flowcontrol", "metric", "plan", "requestinfo"},
	"http1": {
		"apistatus", "auth", "clientconn", "flowcontrol", "passthrough", "plan", "tlsconn", "watch", "websocket",
	},
	"serve": {
		"apistatus", "audit", "auth", "cache", "clientconn", "codec", "fanout", "flowcontrol", "freshness",
		"h2", "http1", "memory", "metric", "object", "passthrough", "plan", "source", "tracing", "watch", "watchdog",
	},
	"status":        {},
	"top":           {"status"},
	"check":         {"editdistance", "status"},
	"fakeapiserver": {"object"},
	"testutil":      {},

	// no other package imports sidecar: it is no part of what serves
	"sidecar":      {"auth", "domain", "flowcontrol", "listen", "memory", "quantity", "tlsconn", "upstream"},
	"clientconfig": {},
}

// keptTo are libraries that only some packages below internal/ may import, and why. They bind
// internal/ and cmd/; tests and load programs may use what they like.
var keptTo = []struct {
	library  string
	packages []string
	reason   string
}{
	{"github.com/valyala/fasthttp", []string{"http1"},
		"fasthttp reuses what it hands out; only http1 knows when that happens"},
	{"k8s.io/client-go", []string{"upstream", "codec", "clientconfig", "fakeapiserver", "sidecar/limits"},
		"client-go holds the proxy's credentials and its own ideas of retry; the rest works on apimachinery's types, codec " +
			"on client-go's scheme, and clientconfig writes what it reads"},
	{"k8s.io/apiserver", []string{"audit", "requestinfo", "tracing"},
		"a server's library brings registries and gates of its own along; of it there is what audit policies mean, what " +
			"events look like, how requests are read, and how tracing is configured"},
	{"go.opentelemetry.io", []string{"tracing"},
		"there is one place that knows what of a request may be recorded"},
}

// forbidden returns why the package in folder (relative to the module, with slashes) must not
// import what it does, or "".
func forbidden(folder, imported string) string {
	top, inner, _ := strings.Cut(folder, "/")
	if top != "internal" && top != "cmd" {
		return ""
	}
	for _, rule := range keptTo {
		allowed := top == "internal" &&
			slices.ContainsFunc(rule.packages, func(folder string) bool { return within(inner, folder) })
		if within(imported, rule.library) && !allowed {
			return "only " + strings.Join(rule.packages, ", ") + " may: " + rule.reason
		}
	}
	if !within(imported, module) || top == "cmd" {
		return ""
	}
	self := roomOf(inner)
	allowed, known := mayImport[self]
	if !known {
		return "internal/" + self + " is not in the table mayImport of this test: decide what it may import and add it"
	}
	below, ok := strings.CutPrefix(imported, module+"/internal/")
	if !ok {
		return "nothing below internal/ imports what is above it"
	}
	target, house := roomOf(below), houseOf(below)
	if target == self || slices.Contains(allowed, target) ||
		house != houseOf(self) && slices.Contains(allowed, house) {
		return ""
	}
	if len(allowed) == 0 {
		return "internal/" + self + " imports no package of ours, so that everything else can build on it"
	}
	return "of ours, internal/" + self + " may import " + strings.Join(allowed, ", ") + " only: dependencies go one way"
}

// roomOf is the nearest folder that has an entry in mayImport, or else the house.
func roomOf(folder string) string {
	for room := folder; room != "."; room = path.Dir(room) {
		if _, known := mayImport[room]; known {
			return room
		}
	}
	return houseOf(folder)
}

func houseOf(folder string) string {
	house, _, _ := strings.Cut(folder, "/")
	return house
}

// within reports whether an import path is that of parent or of a package inside it.
func within(imported, parent string) bool {
	return imported == parent || strings.HasPrefix(imported, parent+"/")
}

// TestImportsGoOneWay checks every Go file of this module, whatever it is built for, but not tests
// and not modules inside this one.
func TestImportsGoOneWay(t *testing.T) {
	root := ".."
	checked := 0
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipForeign(root, file, entry.Name())
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		checked++
		return checkImports(t, root, file)
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked == 0 {
		t.Error("no Go files found: is this test still in internal/?")
	}
}

// skipForeign returns fs.SkipDir for folders that are not part of this module.
func skipForeign(root, dir, name string) error {
	if dir == root {
		return nil
	}
	if name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return fs.SkipDir
	}
	switch _, err := os.Stat(filepath.Join(dir, "go.mod")); {
	case err == nil:
		return fs.SkipDir
	case errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return err
	}
}

func checkImports(t *testing.T, root, file string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		return err
	}
	name, err := filepath.Rel(root, file)
	if err != nil {
		return err
	}
	name = filepath.ToSlash(name)
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		if reason := forbidden(path.Dir(name), imported); reason != "" {
			t.Errorf("%s imports %s: %s", name, imported, reason)
		}
	}
	return nil
}

// The rules must bite: what they are for is found, what is fine is not.
func TestForbidden(t *testing.T) {
	f := func(folder, imported, want string) {
		t.Helper()
		got := forbidden(folder, imported)
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("forbidden(%s, %s) = %q, want %q in it", folder, imported, got, want)
		}
	}
	f("internal/cache", "spillway/internal/ring", "")
	f("internal/cache", "spillway/internal/fanout", "may import object, ring only")
	f("internal/object", "spillway/internal/ring", "imports no package of ours")
	f("internal/object/scan", "spillway/internal/object", "")
	f("internal/object/scan", "spillway/internal/cache", "imports no package of ours")
	f("internal/upstream", "spillway/internal/cache", "of ours, internal/upstream may import ")
	f("internal/upstream", "spillway/internal/upstream/wire", "")
	f("internal/upstream", "spillway/internal/upstream/discovery", "of ours, internal/upstream may import ")
	f("internal/upstream/probes", "spillway/internal/upstream/discovery", "of ours, internal/upstream/probes may ")
	f("internal/upstream/wire", "spillway/internal/upstream", "of ours, internal/upstream/wire may import object only")
	f("internal/upstream/wire", "spillway/internal/rawio", "of ours, internal/upstream/wire may import object only")
	f("internal/mirror", "spillway/internal/upstream/wire", "")
	f("internal/serve", "spillway/internal/upstream", "of ours, internal/serve may import ")
	f("internal/serve", "spillway/internal/serve/wire", "")
	f("internal/serve", "spillway/cmd/proxy", "nothing below internal/ imports what is above it")
	f("internal/newcomer", "spillway/internal/object", "not in the table")
	f("internal/newcomer", "net/http", "")
	f("internal/fanout", "spillwayish/internal/serve", "")
	f("cmd/proxy", "spillway/internal/upstream", "")
	f("internal/status", "spillway/internal/serve", "imports no package of ours")
	f("internal/top", "spillway/internal/status", "")

	f("internal/http1", "github.com/valyala/fasthttp/fasthttputil", "")
	f("internal/fanout", "github.com/valyala/fasthttp", "only http1 may")
	f("cmd/proxy", "github.com/valyala/fasthttp", "only http1 may")
	f("internal/upstream", "k8s.io/client-go/tools/cache", "")
	f("internal/serve", "k8s.io/client-go/rest",
		"only upstream, codec, clientconfig, fakeapiserver, sidecar/limits may")
	f("cmd/proxy", "k8s.io/client-go/tools/clientcmd",
		"only upstream, codec, clientconfig, fakeapiserver, sidecar/limits may")
	f("internal/sidecar/limits", "k8s.io/client-go/tools/cache", "")
	f("internal/sidecar/inject", "k8s.io/client-go/tools/cache", "only upstream, codec, ")
	f("internal/serve", "spillway/internal/sidecar/inject", "of ours, internal/serve may import ")
	f("internal/config", "spillway/internal/sidecar/files", "of ours, internal/config may import ")
	f("internal/audit", "k8s.io/apiserver/pkg/audit/policy", "")
	f("internal/auth", "k8s.io/apiserver/pkg/authentication/user", "only audit, requestinfo, tracing may")
	f("internal/tracing", "go.opentelemetry.io/otel/trace", "")
	f("internal/serve", "go.opentelemetry.io/otel/trace", "only tracing may")
	f("internal/object", "k8s.io/apimachinery/pkg/labels", "")
	f("test/e2e/conformance", "k8s.io/client-go/rest", "")
	f("bench", "github.com/valyala/fasthttp", "")
}

// TestFoldersAreInLayers holds the tables of folders in ARCHITECTURE.md: each folder is in one of
// them, and a folder of the first four imports nothing from a table above its own.
func TestFoldersAreInLayers(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, _ := strings.Cut(string(text), "\n## Folders\n")
	chapter, _, _ = strings.Cut(chapter, "\n## ")
	for _, problem := range upwardImports(layersOf(chapter), mayImport) {
		t.Error(problem)
	}
}

func TestPlantedLayersAreFound(t *testing.T) {
	chapter := "| folder | purpose |\n| `internal/a` | one |\n| `internal/b` | two |\n\n" +
		"| folder | purpose |\n| `internal/c` | three |\n"
	for name, imports := range map[string]map[string][]string{
		"imports upward":     {"a": {"c"}, "b": {}, "c": {"b"}},
		"folder without row": {"a": {}, "b": {}, "c": {}, "d": {}},
	} {
		if problems := upwardImports(layersOf(chapter), imports); len(problems) != 1 {
			t.Errorf("%s: got %q, want one problem", name, problems)
		}
	}
	downward := map[string][]string{"a": {"b", "c"}, "b": {}, "c": {}}
	if problems := upwardImports(layersOf(chapter), downward); problems != nil {
		t.Errorf("got %q for imports downward", problems)
	}
}

// layersOf returns the number of the table that each folder of a chapter is in.
func layersOf(chapter string) map[string]int {
	layers, table := map[string]int{}, 0
	for line := range strings.Lines(chapter) {
		if strings.HasPrefix(line, "| folder |") {
			table++
		}
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !strings.HasPrefix(cell, "`internal/") {
			continue
		}
		layers[strings.TrimPrefix(strings.Trim(cell, "`"), "internal/")] = table
	}
	return layers
}

// upwardImports names the folders that no table has, and the imports that lead upward in the first
// four tables.
func upwardImports(layers map[string]int, imports map[string][]string) (problems []string) {
	for _, folder := range slices.Sorted(maps.Keys(imports)) {
		layer := layerOf(layers, folder)
		if layer == 0 {
			problems = append(problems, folder+" is in no table of ARCHITECTURE.md")
		}
		for _, imported := range imports[folder] {
			if layerOf(layers, imported) < layer && layer <= 4 {
				problems = append(problems, folder+" imports "+imported+", which is in a table above its own")
			}
		}
	}
	return problems
}

// layerOf is the table of a folder, or else that of the nearest folder above it or below it.
func layerOf(layers map[string]int, folder string) int {
	for room := folder; room != "."; room = path.Dir(room) {
		if layers[room] > 0 {
			return layers[room]
		}
	}
	for room, layer := range layers {
		if within(room, folder) {
			return layer
		}
	}
	return 0
}
