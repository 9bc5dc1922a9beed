package release

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// What the releases of these tests are of.
const (
	version  = "v1.2.3"
	revision = "0123456789abcdef0123456789abcdef01234567"
	epoch    = "1700000000"
)

// root is the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	must(t, err)
	return dir
}

// helm is the program that make tools builds, without which its test is skipped.
func helm(t *testing.T) string {
	t.Helper()
	path := filepath.Join(root(t), "bin", "tools", "helm")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%v: run make tools", err)
	}
	return path
}

// run runs a program in dir and returns what it printed.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// checkout is a copy of the repository's files in a folder of its own, with nothing that was built.
func checkout(t *testing.T, under ...string) string {
	t.Helper()
	dir := filepath.Join(append([]string{t.TempDir()}, under...)...)
	must(t, os.MkdirAll(dir, 0o700))
	run(t, root(t), []string{"TO=" + dir}, "bash", "-euo", "pipefail", "-c",
		`git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' f; do
			[[ ! -f $f ]] || printf '%s\0' "$f"; done | xargs -0 cp -P --parents -t "$TO"`)
	return dir
}

// release makes one of these platforms in a checkout, without the image, and returns its folder.
func release(t *testing.T, dir, platforms string) string {
	t.Helper()
	run(t, dir, []string{"VERSION=" + version, "REVISION=" + revision, "SOURCE_DATE_EPOCH=" + epoch, "IMAGE_TOOL=none",
		"PLATFORMS=" + platforms, "HELM=" + helm(t)}, filepath.Join(dir, "hack", "release.sh"))
	return filepath.Join(dir, "dist")
}

func TestTwoCheckoutsGiveTheSameRelease(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("releases are made on Linux")
	}
	platform := "linux/" + runtime.GOARCH // whose packages are compiled already
	first := release(t, checkout(t), platform)
	// with the defaults of another machine
	umask := checkout(t, "another", "of", "a", "longer", "name")
	run(t, umask, nil, "chmod", "-R", "go-rwx", ".")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("LANG", "C")
	second := release(t, umask, platform)

	binary := "spillway_" + version + "_linux_" + runtime.GOARCH
	want := []string{"SHA256SUMS", "spillway-1.2.3.tgz", binary, binary + ".cdx.json"}
	for _, dist := range []string{first, second} {
		entries, err := os.ReadDir(dist)
		must(t, err)
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		if !slices.Equal(names, want) {
			t.Errorf("a release holds %q, want %q", names, want)
		}
		run(t, dist, nil, "sha256sum", "--check", "--strict", "SHA256SUMS")
	}
	if one, other := read(t, first, "SHA256SUMS"), read(t, second, "SHA256SUMS"); one != other {
		t.Errorf("two checkouts give\n%s\n%s", one, other)
	}
	if text := run(t, first, nil, filepath.Join(first, binary), "--version"); !strings.Contains(text, version) {
		t.Errorf("--version prints %q, without %s", text, version)
	}
	program := read(t, first, binary)
	if !strings.Contains(program, version) {
		t.Errorf("the program does not hold the version %s", version)
	}
}

// buildah builds several platforms at the same time, and lists them in the order in which they end.
func TestPlatformsOfTheImageAreInOneOrder(t *testing.T) {
	dir := checkout(t)
	called := filepath.Join(dir, "called")
	script := "#!/bin/sh\nprintf '%s\\n' \"$*\" >>" + called + "\n"
	must(t, os.WriteFile(filepath.Join(dir, "buildah"), []byte(script), 0o700)) // #nosec G306 -- it is executed
	run(t, dir, []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "IMAGE_TOOL=buildah", "IMAGE=localhost/spillway",
		"SOURCE_DATE_EPOCH=" + epoch}, filepath.Join(dir, "hack", "image.sh"), "linux/amd64,linux/arm64")
	var platforms []string
	for _, match := range regexp.MustCompile(`(?m)^build .*--platform (\S+) `).FindAllStringSubmatch(read(t, called), -1) {
		platforms = append(platforms, match[1])
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("it is built for %q, want %q, one after another", platforms, want)
	}
}

func TestHelmInstallsTheChartFromARegistry(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	charts := "oci://" + strings.TrimPrefix(server.URL, "http://") + "/charts"
	home := t.TempDir()
	env := []string{"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
		"KUBECONFIG=" + filepath.Join(home, "none"), "DOCKER_CONFIG=" + home}

	digests := map[string]bool{}
	for range 2 { // two checkouts give the same manifest, too
		dist := release(t, checkout(t), "")
		said := run(t, dist, env, helm(t), "push", "--plain-http", "spillway-1.2.3.tgz", charts)
		digests[regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(said)] = true

		pulled := t.TempDir()
		run(t, pulled, env, helm(t), "pull", "--plain-http", "--version=1.2.3", charts+"/spillway")
		if digest(t, pulled, "spillway-1.2.3.tgz") != digest(t, dist, "spillway-1.2.3.tgz") {
			t.Error("the chart that was pulled is not the one that was pushed")
		}
	}
	if len(digests) != 1 || digests[""] {
		t.Errorf("two pushes have the digests %v", digests)
	}

	said := run(t, home, env, helm(t), "install", "spillway", charts+"/spillway", "--version=1.2.3", "--plain-http",
		"--dry-run=client", "--output=json", "--set=image.registry=registry.example.com",
		"--set=tls.generated.withoutCluster=true")
	var installed struct {
		Manifest string
		Chart    struct {
			Metadata struct{ Version, AppVersion string }
		}
	}
	must(t, json.Unmarshal([]byte(said[strings.Index(said, "\n{")+1:]), &installed))
	if m := installed.Chart.Metadata; m.Version != "1.2.3" || m.AppVersion != version {
		t.Errorf("Helm would install version %s of %s", m.Version, m.AppVersion)
	}
	if image := "registry.example.com/spillway:" + version; !strings.Contains(installed.Manifest, image) {
		t.Errorf("the manifest does not name the image %s:\n%s", image, installed.Manifest)
	}
}

// The Makefile and the Dockerfile give a program the same facts, so that it is the same program.
func TestMakefileAndDockerfileStateTheSame(t *testing.T) {
	flag := regexp.MustCompile(`-X main\.(\w+)=`)
	stated := func(file string) (names []string) {
		for _, match := range flag.FindAllStringSubmatch(read(t, root(t), file), -1) {
			names = append(names, match[1])
		}
		return names
	}
	want := []string{"version", "commit"}
	for _, file := range []string{"Makefile", "Dockerfile"} {
		if got := stated(file); !slices.Equal(got, want) {
			t.Errorf("the %s states %q, want %q", file, got, want)
		}
	}
	said := run(t, root(t), nil, "make", "--no-print-directory", "--dry-run", "build", "VERSION="+version,
		"REVISION="+revision)
	for _, want := range []string{"main.version=" + version, "main.commit=" + revision} {
		if !strings.Contains(said, want) {
			t.Errorf("make build does not state %s: %s", want, said)
		}
	}
}

func TestNotesAreAChapterOfTheChangelog(t *testing.T) {
	dir := scripts(t)
	must(t, os.WriteFile(filepath.Join(dir, "CHANGELOG.md"), []byte("# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - "+
		"2026-11-30\n\n### Added\n\n- See [a](docs/a.md#b) and [c](https://c.example/d.md).\n\n## [1.2.2] - "+
		"2026-11-01\n\n- Old.\n\n[1.2.3]: https://d.example\n"), 0o600))
	script := filepath.Join(dir, "hack", "notes.sh")

	got := strings.TrimSpace(run(t, dir, []string{"SOURCE=https://s.example"}, script, version))
	want := "### Added\n\n- See [a](https://s.example/blob/v1.2.3/docs/a.md#b) and [c](https://c.example/d.md)."
	if got != want {
		t.Errorf("the notes are %q, want %q", got, want)
	}
	for name, tag := range map[string]string{"an empty chapter": "Unreleased", "the beginning of a version": "v1.2",
		"no chapter": "v9.9.9"} {
		t.Run(name, func(t *testing.T) {
			if out, err := exec.CommandContext(t.Context(), script, tag).CombinedOutput(); err == nil { // #nosec G204
				t.Errorf("%s has the notes %q", tag, out)
			}
		})
	}
}

func TestTagChartAndChangelogNameOneVersion(t *testing.T) {
	for name, row := range map[string]struct{ tag, version, appVersion, want string }{
		"all the same":             {tag: "v1.2.3", version: "1.2.3", appVersion: "1.2.3"},
		"a release candidate":      {tag: "v1.2.3-rc.1", version: "1.2.3-rc.1", appVersion: "1.2.3-rc.1"},
		"no tag of a release":      {tag: "1.2.3", version: "1.2.3", appVersion: "1.2.3", want: "1.2.3 is no tag"},
		"another chart":            {tag: "v1.2.3", version: "1.2.2", appVersion: "1.2.3", want: "has version 1.2.2"},
		"another program":          {tag: "v1.2.3", version: "1.2.3", appVersion: "v1.2.3", want: "has appVersion v1.2.3"},
		"nothing in the changelog": {tag: "v1.3.0", version: "1.3.0", appVersion: "1.3.0", want: "no chapter ## [1.3.0]"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := scripts(t)
			chart := filepath.Join(dir, "charts", "spillway")
			must(t, os.MkdirAll(chart, 0o700))
			must(t, os.WriteFile(filepath.Join(chart, "Chart.yaml"), fmt.Appendf(nil,
				"apiVersion: v2\nversion: %s\nappVersion: %q\n", row.version, row.appVersion), 0o600))
			must(t, os.WriteFile(filepath.Join(dir, "CHANGELOG.md"), []byte("## [1.2.3]\n\n- New.\n"), 0o600))
			out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "hack", "check-tag.sh"), // #nosec G204
				row.tag).CombinedOutput()
			if (err == nil) != (row.want == "") || !strings.Contains(string(out), row.want) {
				t.Errorf("it prints %q, %v; want %q", out, err, row.want)
			}
		})
	}
}

// An action that is named by a tag is another one once the tag moves.
func TestActionsAreNamedByDigest(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root(t), ".github", "workflows", "*.yml"))
	must(t, err)
	used := regexp.MustCompile(`(?m)^ *(?:- )?uses: (.*)$`)
	pinned := regexp.MustCompile(`^(\./\S+|[\w.-]+/[\w./-]+@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+)$`)
	versions, found := map[string]string{}, 0
	for _, file := range files {
		for _, match := range used.FindAllStringSubmatch(read(t, file), -1) {
			found++
			action, at, _ := strings.Cut(match[1], "@")
			if !pinned.MatchString(match[1]) {
				t.Errorf("%s uses %s, which has no digest and version", filepath.Base(file), match[1])
			}
			if other := versions[action]; other != "" && other != at {
				t.Errorf("%s is used as %s and as %s", action, other, at)
			}
			versions[action] = at
		}
	}
	if found < 10 {
		t.Errorf("only %d uses of actions were found", found)
	}
}

// SUPPORT.md has the versions of Kubernetes that docs/versions.md has results of, and the chart
// installs on no older one.
func TestSupportedVersionsAreTested(t *testing.T) {
	tested := regexp.MustCompile(`(?m)^\| \| (1\.[0-9]+) \|.*\| (1\.[0-9]+) \| WatchList=false`).FindStringSubmatch(
		read(t, root(t), "docs", "versions.md"))
	if tested == nil {
		t.Fatal("docs/versions.md has no table of versions")
	}
	rows := regexp.MustCompile(`(?m)^\| [^|]+ \| (1\.[0-9]+ to 1\.[0-9]+) \|`).FindAllStringSubmatch(
		read(t, root(t), "SUPPORT.md"), -1)
	if len(rows) == 0 {
		t.Error("SUPPORT.md names no versions of Kubernetes")
	}
	for _, row := range rows {
		if want := tested[1] + " to " + tested[2]; row[1] != want {
			t.Errorf("SUPPORT.md has the versions %s, and docs/versions.md those from %s", row[1], want)
		}
	}
	if chart := read(t, root(t), "charts", "spillway", "Chart.yaml"); !strings.Contains(chart,
		"\nkubeVersion: \">="+tested[1]+".0-0\"\n") {
		t.Errorf("the chart's kubeVersion does not begin with %s", tested[1])
	}
}

// scripts is a folder with the scripts of a release, and nothing else.
func scripts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "hack"), 0o700))
	for _, name := range []string{"notes.sh", "check-tag.sh"} {
		text := []byte(read(t, root(t), "hack", name))
		must(t, os.WriteFile(filepath.Join(dir, "hack", name), text, 0o700)) // #nosec G306 -- it is executed
	}
	return dir
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	must(t, err)
	return string(text)
}

func digest(t *testing.T, elements ...string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(read(t, elements...)))
	return hex.EncodeToString(sum[:])
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
