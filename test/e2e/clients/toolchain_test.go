package clients

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// toolchain builds the programs of one folder.
type toolchain struct {
	folder string
	needs  []string // programs that are found in PATH
	build  string   // a shell command in a copy of the folder
	// debian reports that .ci/run installs it, from Debian's packages.
	debian bool
	// module is the go.mod of a folder with Go. Go's cache makes a build of it cheap.
	module string
}

var (
	java = &toolchain{folder: "java", needs: []string{"java", "javac", "mvn"}, debian: true,
		build: "mvn --batch-mode --quiet --strict-checksums compile dependency:copy-dependencies " +
			"-DoutputDirectory=target/lib && cd target/lib && sha256sum --check --quiet --strict ../../lib.sha256"}
	javascript = &toolchain{folder: "javascript", needs: []string{"node", "npm"}, debian: true,
		build: "npm ci --ignore-scripts --no-audit --no-fund"}
	python = &toolchain{folder: "python", needs: []string{"python3"}, debian: true,
		build: "python3 -m venv venv && venv/bin/pip install --quiet --disable-pip-version-check --require-hashes " +
			"--only-binary=:all: -r requirements.txt"}
	// The crates are compiled once for all versions of the program.
	rust = &toolchain{folder: "rust", needs: []string{"cargo"},
		build: "cargo build --locked --quiet --target-dir ../rust-target && cp ../rust-target/debug/spillway-rust-client ."}
)

// golang is the toolchain of a module in a folder.
func golang(folder, module string) *toolchain {
	return &toolchain{folder: folder, needs: []string{"go"}, module: module}
}

// missing is why the toolchain cannot be used; empty: it can. In CI what it installs may not be
// missing.
func (c *toolchain) missing(t *testing.T) string {
	t.Helper()
	var all error
	for _, name := range c.needs {
		_, err := exec.LookPath(name)
		all = errors.Join(all, err)
	}
	if all == nil {
		return ""
	}
	if c.debian && os.Getenv("CI") != "" {
		t.Errorf("in CI the clients of %s must be tested: %v", c.folder, all)
	}
	return strings.ReplaceAll(all.Error(), "\n", "; ")
}

// built returns the folder with the built programs. But for those in Go it is one of the user's
// cache that is named for the sources and the toolchain, so that all clones on a machine share it.
func (c *toolchain) built(ctx context.Context, repository string) (string, error) {
	if c.module != "" {
		dir := filepath.Join(repository, "bin", "clients", c.folder+"-"+c.module)
		build := exec.CommandContext(ctx, "go", "build", "-modfile="+c.module, "-o", filepath.Join(dir, "client"), ".")
		build.Dir = c.folder
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", build, err, out)
		}
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "spillway", "clients")
	version, err := exec.CommandContext(ctx, c.needs[0], "--version").CombinedOutput()
	if err != nil {
		return "", err
	}
	sum, err := c.sum(version)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, c.folder+"-"+sum)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	partial, err := os.MkdirTemp(cache, c.folder+".partial-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(partial)
	if err := os.CopyFS(partial, os.DirFS(c.folder)); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "sh", "-ec", c.build)
	build.Dir = partial
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", c.build, err, out)
	}
	if err := os.Rename(partial, dir); err != nil && !errors.Is(err, fs.ErrExist) { // another clone was first
		return "", err
	}
	return dir, nil
}

// sum is a digest of all that the built programs depend on.
func (c *toolchain) sum(version []byte) (string, error) {
	h := sha256.New()
	h.Write(version)
	h.Write([]byte(c.build))
	err := filepath.WalkDir(c.folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		h.Write([]byte(path))
		h.Write(text)
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:16], err
}

// pinned is the version of a client that a lock file of the folder names: the first group of the
// pattern.
func (c *toolchain) pinned(t *testing.T, file, pattern string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.folder, file))
	must(t, err)
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s/%s does not name %s", c.folder, file, pattern)
	}
	return string(found[1])
}
