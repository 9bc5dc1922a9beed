package image

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/test/framework/process"
)

// The arguments that images are built with here.
const (
	version  = "v1.2.3"
	revision = "0123456789abcdef0123456789abcdef01234567"
	source   = "https://git.example.com/spillway"
	epoch    = "1700000000"
	created  = "2023-11-14T22:13:20Z"
)

// builder is buildah with a store of its own, in which the two base images are. It needs neither an
// engine nor, with chroot for isolation, cgroups.
type builder struct {
	t    *testing.T
	root string // of the repository
	env  []string
}

func newBuilder(t *testing.T) *builder {
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
	b := &builder{t: t, root: process.Repository(t)}
	store, conf := filepath.Join(dir, "store"), filepath.Join(dir, "storage.conf")
	must(t, os.WriteFile(conf, fmt.Appendf(nil, "[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", store,
		filepath.Join(dir, "run")), 0o600))
	b.env = append(os.Environ(), "CONTAINERS_STORAGE_CONF="+conf, "STORAGE_DRIVER=vfs", "BUILDAH_ISOLATION=chroot",
		"TMPDIR="+dir)

	// which the build does, too, without a network: no build here has needed modules for other systems
	b.run("go", "-C", b.root, "mod", "download")
	busybox, err := exec.LookPath("busybox")
	must(t, err)
	for name, context := range map[string]string{"golang": filepath.Dir(busybox), "base": "testdata"} {
		b.run("buildah", "build", "--layers=false", "--tag=localhost/"+name,
			"--file="+filepath.Join("testdata", name+".Dockerfile"), context)
	}
	return b
}

// run runs a program and returns what it printed.
func (b *builder) run(name string, args ...string) string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), name, args...)
	cmd.Env = b.env
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		b.t.Fatalf("%s %s: %v\n%s\n%s", name, strings.Join(args, " "), err, out, said.String())
	}
	return strings.TrimSpace(string(out))
}

// build is make image with the bases at hand, and returns the image's digest.
func (b *builder) build(tag string) string {
	b.t.Helper()
	flags := []string{"--layers=false", "--pull-never", "--build-arg=GOLANG=localhost/golang",
		"--build-arg=BASE=localhost/base"}
	for mount, of := range map[string]string{"/usr/local/go:ro": "GOROOT", "/modules": "GOMODCACHE", "/cache": "GOCACHE"} {
		flags = append(flags, "--volume="+b.run("go", "env", of)+":"+mount)
	}
	b.run("make", "-C", b.root, "--no-print-directory", "image", "IMAGE=localhost/"+tag, "VERSION="+version, "REVISION="+
		revision, "SOURCE="+source,
		"SOURCE_DATE_EPOCH="+epoch, "IMAGE_TOOL=buildah", "IMAGE_FLAGS="+strings.Join(flags, " "))
	return b.run("buildah", "images", "--no-trunc", "--quiet", "localhost/"+tag)
}

// settings are an image's, as the OCI's image-spec names them.
type settings struct {
	Created time.Time
	Config  struct {
		User         string
		Entrypoint   []string
		ExposedPorts map[string]struct{}
		Labels       map[string]string
	}
}

func (b *builder) settings(tag string) settings {
	b.t.Helper()
	var image struct{ OCIv1 settings }
	must(b.t, json.Unmarshal([]byte(b.run("buildah", "inspect", "--type=image", "localhost/"+tag)), &image))
	return image.OCIv1
}

// unpack is a folder with an image's files.
func (b *builder) unpack(tag string) string {
	b.t.Helper()
	return b.run("buildah", "mount", b.run("buildah", "from", "--pull-never", "localhost/"+tag))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
