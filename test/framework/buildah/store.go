// Package buildah builds the container image by the project's own Dockerfile without an engine or a
// registry: what the Dockerfile builds on is made here, of Go's own folder and BusyBox.
package buildah

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"spillway/test/framework/process"
)

// Store is buildah with a store of its own, in which the two base images are. It needs neither an
// engine nor, with chroot for isolation, cgroups.
type Store struct {
	t    *testing.T
	root string // of the repository
	env  []string
}

// New skips the test where images cannot be built.
func New(t *testing.T) *Store {
	t.Helper()
	for _, program := range []string{"buildah", "runc", "busybox", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%v: run make containers", err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may start containers without an engine")
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "--mount-proc",
		"true").CombinedOutput(); err != nil {
		t.Skipf("no namespaces may be made here: %v: %s", err, out)
	}
	dir := t.TempDir()
	s := &Store{t: t, root: process.Repository(t)}
	store, conf := filepath.Join(dir, "store"), filepath.Join(dir, "storage.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", store,
		filepath.Join(dir, "run")), 0o600); err != nil {
		t.Fatal(err)
	}
	s.env = append(os.Environ(), "CONTAINERS_STORAGE_CONF="+conf, "STORAGE_DRIVER=vfs", "BUILDAH_ISOLATION=chroot",
		"TMPDIR="+dir)

	// which the build does, too, without a network: no build here has needed modules for other systems
	s.Run("go", "-C", s.root, "mod", "download")
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	bases := filepath.Join(s.root, "test", "framework", "buildah", "bases")
	for name, context := range map[string]string{"golang": filepath.Dir(busybox), "base": bases} {
		s.Run("buildah", "build", "--layers=false", "--tag=localhost/"+name,
			"--file="+filepath.Join(bases, name+".Dockerfile"), context)
	}
	return s
}

// unsealed is what buildah says when it cannot seal the copy of itself that it is about to execute.
// The kernel refuses that while a write to the copy is under way, which is soon over.
const unsealed = "sealing memfd copy"

// sealings is how often a program is run that could not be sealed.
const sealings = 10

// Run runs a program and returns what it printed.
func (s *Store) Run(name string, args ...string) string {
	s.t.Helper()
	for tries := 1; ; tries++ {
		cmd := exec.CommandContext(s.t.Context(), name, args...)
		cmd.Env = s.env
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		switch {
		case err == nil:
			return strings.TrimSpace(string(out))
		case tries == sealings || !strings.Contains(said.String(), unsealed):
			s.t.Fatalf("%s %s: %v\n%s\n%s", name, strings.Join(args, " "), err, out, said.String())
		}
	}
}

// Make runs a target of the Makefile.
func (s *Store) Make(target string, variables ...string) {
	s.t.Helper()
	s.Run("make", append([]string{"-C", s.root, "--no-print-directory", target}, variables...)...)
}

// Build is make image with the bases at hand: of the image localhost/tag, with variables of make.
func (s *Store) Build(tag string, variables ...string) {
	s.t.Helper()
	flags := []string{"--layers=false", "--pull-never", "--build-arg=GOLANG=localhost/golang",
		"--build-arg=BASE=localhost/base"}
	for mount, of := range map[string]string{"/usr/local/go:ro": "GOROOT", "/modules": "GOMODCACHE", "/cache": "GOCACHE"} {
		flags = append(flags, "--volume="+s.Run("go", "env", of)+":"+mount)
	}
	s.Make("image", append(variables, "IMAGE=localhost/"+tag, "IMAGE_TOOL=buildah",
		"IMAGE_FLAGS="+strings.Join(flags, " "))...)
}

// Archive writes the image localhost/tag to a file, as an OCI archive.
func (s *Store) Archive(tag, file string) {
	s.t.Helper()
	s.Run("buildah", "push", "localhost/"+tag, "oci-archive:"+file+":localhost/"+tag)
}
