//go:build linux

package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// bound is a socket that these options make, in a folder that everybody may enter.
func bound(t *testing.T, mode fs.FileMode, owner socketOwner) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "spillway-socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s.sock")
	o := newOptions()
	o.socketMode, o.socketOwner = mode, owner
	listener, err := o.bind("listen", "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = listener.Close()
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	return path
}

// A socket has its permissions and its owner, and is private before: whatever the umask leaves open.
func TestUnixSocketPermissions(t *testing.T) {
	old := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(old) })
	path := filepath.Join(t.TempDir(), "first.sock")
	config := net.ListenConfig{Control: bindPrivate}
	listener, err := config.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	expectSocket(t, path, 0o600, os.Getuid(), os.Getgid()) // without any chmod

	expectSocket(t, bound(t, 0o600, keepOwner), 0o600, os.Getuid(), os.Getgid())
	expectSocket(t, bound(t, 0o660, keepOwner), 0o660, os.Getuid(), os.Getgid())
	syscall.Umask(0o777)
	expectSocket(t, bound(t, 0o666, keepOwner), 0o666, os.Getuid(), os.Getgid())
	syscall.Umask(0)
	if os.Getuid() != 0 {
		t.Skip("the rest needs root, who alone may give files away")
	}
	expectSocket(t, bound(t, 0o600, socketOwner{stranger, -1}), 0o600, stranger, os.Getgid())
	expectSocket(t, bound(t, 0o660, socketOwner{-1, stranger}), 0o660, os.Getuid(), stranger)
}

func expectSocket(t *testing.T, path string, mode fs.FileMode, uid, gid int) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	if info.Mode() != fs.ModeSocket|mode || int(owner.Uid) != uid || int(owner.Gid) != gid {
		t.Errorf("%s is %v of %d:%d, want %v of %d:%d", path, info.Mode(), owner.Uid, owner.Gid, fs.ModeSocket|mode, uid, gid)
	}
}

// stranger is the user and the group nobody.
const stranger = 65534

// dialling tells a child of this test what to connect to.
const dialling = "SPILLWAY_TEST_DIAL"

// Another user of the machine cannot connect, unless the socket is his or his group's. The child is this very program.
func TestUnixSocketRefusesStrangers(t *testing.T) {
	if path := os.Getenv(dialling); path != "" {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatalf("EACCES %v: %v", errors.Is(err, unix.EACCES), err)
		}
		_ = conn.Close()
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	f := func(name, path string, connects bool) {
		t.Helper()
		child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestUnixSocketRefusesStrangers$", "-test.v")
		child.Env = []string{dialling + "=" + path}
		child.Dir = "/"
		child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
		out, err := child.CombinedOutput()
		refused := strings.Contains(string(out), "EACCES true")
		if connected := err == nil && strings.Contains(string(out), "--- PASS"); connected != connects || refused == connects {
			t.Errorf("%s: connected %v, want %v: %v\n%s", name, connected, connects, err, out)
		}
	}
	f("ours", bound(t, 0o600, keepOwner), false)
	f("ours, and our group's", bound(t, 0o660, keepOwner), false)
	f("his", bound(t, 0o600, socketOwner{stranger, -1}), true)
	f("his group's, which has no part in it", bound(t, 0o600, socketOwner{-1, stranger}), false)
	f("his group's", bound(t, 0o660, socketOwner{-1, stranger}), true)
	f("everybody's", bound(t, 0o666, keepOwner), true)
}

// What was put in the place of a socket by somebody else is left as it is.
func TestUnixSocketFollowsNothing(t *testing.T) {
	dir := t.TempDir()
	precious := writeFile(t, "precious", "mine")
	link := filepath.Join(dir, "s.sock")
	if err := os.Symlink(precious, link); err != nil {
		t.Fatal(err)
	}
	if err := (unixSocket{path: link, mode: 0o666, owner: keepOwner}).open(); !errors.Is(err, errSocketMode) {
		t.Errorf("opened a link: %v", err)
	}
	if info, err := os.Stat(precious); err != nil || info.Mode() != 0o600 {
		t.Errorf("what it leads to is now %v, %v", info, err)
	}
	if _, err := (unixSocket{path: link, mode: 0o666, owner: keepOwner}).listen(); err == nil {
		t.Error("bound in the place of a link")
	}
}

func TestParseOwner(t *testing.T) {
	f := func(text string, uid, gid int) {
		t.Helper()
		got, err := parseOwner(text)
		if err != nil || got != (socketOwner{uid, gid}) {
			t.Errorf("parseOwner(%q) = %v, %v; want %d:%d", text, got, err, uid, gid)
		}
	}
	f("", -1, -1)
	f("root", 0, -1)
	f("root:root", 0, 0)
	f(":root", -1, 0)
	f("1000", 1000, -1)
	f("1000:2000", 1000, 2000)
	f(":2000", -1, 2000)
	for _, bad := range []string{":", "root:", "no such user", "root:no-such-group", "-1", "4294967295", "0:-1", "a:b:c"} {
		if got, err := parseOwner(bad); err == nil {
			t.Errorf("parseOwner(%q) = %v, want an error", bad, got)
		}
	}
}
