// Package own tests hack/own.sh, which gives the project an owner's names, in copies of the
// repository.
package own

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"spillway/internal/domain"
)

const root = "../../.."

// names are the arguments of hack/own.sh.
type names struct{ module, domain, registry string }

// first and second are put together, so that this file has none of their names for the script to
// replace.
var (
	first  = namesAt("first.test")
	second = namesAt("second.test")
)

func namesAt(host string) names {
	return names{"git." + host + "/team/spillway", "spillway." + host, "registry." + host + ":5000/team"}
}

// A copy with an owner's names builds and passes its tests, and has no trace of the names of now.
func TestOwnedCopyPassesItsTests(t *testing.T) {
	dir := t.TempDir()
	copyTo(t, dir)
	own(t, dir, first)
	now := namesOfNow(t)
	trace := regexp.MustCompile(`\b` + regexp.QuoteMeta(now.domain) + `\b|\b` + regexp.QuoteMeta(now.registry) +
		`\b|(^|[^\w./-])` + regexp.QuoteMeta(now.module) + `/(internal|cmd|test|bench)\b`)
	for path, text := range contents(t, dir) {
		if found := trace.FindString(text); found != "" {
			t.Errorf("%s has %q", path, found)
		}
	}
	goIn(t, dir, "build", "-o", filepath.Join(dir, "bin", "spillway"), "./cmd/proxy")
	goIn(t, dir, "test", "-short", "./internal")
	linkTools(t, dir)
	goIn(t, filepath.Join(dir, "test"), "test", "-run=^TestRender|^TestLabels|^TestFormer|^TestUmbrella|^TestMetadata",
		"./e2e/chart")
	if testing.Short() {
		return // what follows compiles everything again
	}
	goIn(t, dir, "test", "-short", "./...")
	goIn(t, filepath.Join(dir, "test"), "vet", "./...")
	goIn(t, filepath.Join(dir, "bench"), "vet", "./...")
}

func TestSecondRunChangesNothing(t *testing.T) {
	dir := t.TempDir()
	copyTo(t, dir)
	own(t, dir, first)
	once := contents(t, dir)
	own(t, dir, first)
	compare(t, once, contents(t, dir))
}

// A new owner's names are the same, whatever names the project had.
func TestNextOwner(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	copyTo(t, dir)
	copyTo(t, other)
	own(t, dir, first)
	own(t, dir, second)
	own(t, other, second)
	compare(t, contents(t, other), contents(t, dir))
}

func TestNamesThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	copyTo(t, dir)
	before := contents(t, dir)
	for _, row := range []struct {
		args []string
		want string
	}{
		{nil, "usage: hack/own.sh MODULE DOMAIN REGISTRY"},
		{[]string{"a.test/b", "b.test"}, "usage: "},
		{[]string{"spillway", "b.test", "c.test"}, "MODULE spillway: must be like github.com/acme/spillway"},
		{[]string{"https://a.test/b", "b.test", "c.test"}, "MODULE https://a.test/b: must be like"},
		{[]string{"a.test/b", "https://b.test", "c.test"}, "DOMAIN https://b.test: must be like"},
		{[]string{"a.test/b", "b", "c.test"}, "DOMAIN b: must be like"},
		{[]string{"a.test/b", "b.test", "c.test/A"}, "REGISTRY c.test/A: must be like ghcr.io/acme"},
		{[]string{"a.test/b", "b.test", "c.test\nd.test"}, "REGISTRY c.test\nd.test: must be like ghcr.io/acme"},
	} {
		out, err := script(t.Context(), dir, row.args...)
		if err == nil || !strings.Contains(out, row.want) {
			t.Errorf("%q: %v: %s, want %q", row.args, err, out, row.want)
		}
		compare(t, before, contents(t, dir))
	}
}

// copyTo copies all files that git tracks, or would track, into a new repository.
func copyTo(t *testing.T, dir string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others",
		"--exclude-standard").Output()
	must(t, err)
	for path := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil || info.IsDir() { // deleted, or a link to bin
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		must(t, err)
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, path), text, info.Mode().Perm()))
	}
	run(t, dir, "git", "init", "--quiet")
	run(t, dir, "git", "add", "--all")
}

// contents are the files that git tracks in a copy, by their paths.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for path := range strings.SplitSeq(strings.TrimSuffix(run(t, dir, "git", "ls-files", "-z"), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(dir, path))
		must(t, err)
		files[path] = string(text)
	}
	return files
}

func compare(t *testing.T, want, got map[string]string) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if got[path] != want[path] {
			t.Errorf("%s differs", path)
		}
	}
}

// namesOfNow are the names that this repository has.
func namesOfNow(t *testing.T) names {
	t.Helper()
	find := func(path, pattern string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		must(t, err)
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no %s", path, pattern)
		}
		return string(found[1])
	}
	return names{
		module:   find("go.mod", `(?m)^module (\S+)`),
		domain:   domain.Domain,
		registry: find("charts/spillway/values.yaml", `(?m)^  registry: (\S+)`),
	}
}

// linkTools gives a copy the tools of this repository, such as Helm.
func linkTools(t *testing.T, dir string) {
	t.Helper()
	tools, err := filepath.Abs(filepath.Join(root, "bin", "tools"))
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
	must(t, os.Symlink(tools, filepath.Join(dir, "bin", "tools")))
}

func own(t *testing.T, dir string, n names) {
	t.Helper()
	if out, err := script(t.Context(), dir, n.module, n.domain, n.registry); err != nil {
		t.Fatalf("hack/own.sh: %v: %s", err, out)
	}
}

func script(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "hack", "own.sh"), args...).CombinedOutput()
	return string(out), err
}

func goIn(t *testing.T, dir string, args ...string) {
	t.Helper()
	run(t, dir, "go", args...)
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
