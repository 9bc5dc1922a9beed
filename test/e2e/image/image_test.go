package image

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway/test/framework/buildah"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// TestBasesNameTheirRegistry reads the Dockerfile: podman and buildah, as distributions configure
// them, look for a name without a registry nowhere.
func TestBasesNameTheirRegistry(t *testing.T) {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	bases := regexp.MustCompile(`(?m)^ARG (?:GOLANG|BASE)=(\S+)$`).FindAllSubmatch(text, -1)
	if len(bases) != 2 {
		t.Fatalf("%d bases, want 2", len(bases))
	}
	for _, base := range bases {
		if registry, _, ok := strings.Cut(string(base[1]), "/"); !ok || !strings.Contains(registry, ".") {
			t.Errorf("%s does not name its registry", base[1])
		}
	}
}

// The image has its labels, is the same when it is built again, and holds the program that a
// checkout gives: with its licence, and nothing else.
func TestImageIsReproducibleAndMinimal(t *testing.T) {
	store := buildah.New(t)
	first := build(store, "spillway")
	if second := build(store, "again"); second != first {
		t.Errorf("built again, it is %s, before %s", second, first)
	}

	s := settingsOf(t, store, "spillway")
	if s.Config.User != "65532:65532" || !slices.Equal(s.Config.Entrypoint, []string{"/spillway"}) {
		t.Errorf("it runs %q as %q", s.Config.Entrypoint, s.Config.User)
	}
	if s.Created.UTC().Format(time.RFC3339) != created {
		t.Errorf("it was created at %v, want %s", s.Created, created)
	}
	for label, want := range map[string]string{
		"title": "Spillway", "licenses": "Apache-2.0", "version": version, "revision": revision, "source": source,
		"created": created, "base.name": "localhost/base",
	} {
		if got := s.Config.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("its label %s is %q, want %q", label, got, want)
		}
	}
	if s.Config.Labels["org.opencontainers.image.description"] == "" {
		t.Error("it has no description")
	}

	root := unpack(store, "spillway")
	if got, want := files(t, root), []string{"LICENSE", "etc/passwd", "spillway"}; !slices.Equal(got, want) {
		t.Errorf("it holds %q, want %q", got, want)
	}
	elsewhere := filepath.Join(t.TempDir(), "spillway")
	store.Make("build", "BINARY="+elsewhere, "VERSION="+version, "REVISION="+revision)
	if digest(t, filepath.Join(root, "spillway")) != digest(t, elsewhere) {
		t.Error("its program is not the one that make build gives")
	}

	t.Run("container", func(t *testing.T) { testContainer(t, root, s) })
}

// testContainer starts what is below root as the image says, and as the strictest Pod Security
// Standard wants it.
func testContainer(t *testing.T, root string, s settings) {
	said := startContainer(t, root, s, "--version")
	<-said.child.Done
	if text := string(said.log.Text()); said.child.Err != nil || !strings.HasPrefix(text, "spillway "+version+" ") {
		t.Fatalf("--version: %v: %s", said.child.Err, text)
	}

	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	must(t, err)
	t.Cleanup(cp.Stop)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, controlplane.WriteKubeconfig(kubeconfig, cp.Config(controlplane.Admin)))
	must(t, os.Chmod(kubeconfig, 0o444)) // for the container's user
	c := startContainer(t, root, s, "--kubeconfig="+kubeconfig, "--resources=configmaps", "--listen-identity=self",
		"--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0")
	for _, path := range []string{"livez", "readyz"} {
		process.Awaiting(t, "/"+path,
			c.answers(func(a process.Addresses) string { return "http://" + a.Metrics + "/" + path }))
	}
	process.Awaiting(t, "an answer", c.answers(func(a process.Addresses) string {
		return "http://" + a.Plain + "/api/v1/namespaces/default/configmaps?resourceVersion=0"
	}))

	pid := c.process(t)
	status := read(t, fmt.Sprintf("/proc/%d/status", pid))
	for name, want := range map[string]string{
		"Uid": "65532 65532 65532 65532", "Gid": "65532 65532 65532 65532", "Groups": "", "NoNewPrivs": "1",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
	} {
		if got := field(status, name); got != want {
			t.Errorf("its %s is %q, want %q", name, got, want)
		}
	}
	if err := os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "root", "file"), nil, 0o600); err == nil ||
		!strings.Contains(err.Error(), syscall.EROFS.Error()) {
		t.Errorf("writing below its root: %v", err)
	}

	must(t, syscall.Kill(pid, syscall.SIGTERM))
	select {
	case <-c.child.Done:
	case <-time.After(process.Patience):
		t.Fatal("it does not end")
	}
	if c.child.Err != nil {
		t.Errorf("it ended with %v", c.child.Err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// none are no capabilities.
const none = "0000000000000000"

// field is a line's value in a process's status.
func field(status, name string) string {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return "missing"
}

// files are all below root.
func files(t *testing.T, root string) []string {
	t.Helper()
	all := map[string]bool{}
	must(t, fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			all[path] = true
		}
		return err
	}))
	return slices.Sorted(maps.Keys(all))
}

func digest(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	return sha256.Sum256([]byte(read(t, path)))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(bytes.TrimSpace(text))
}
