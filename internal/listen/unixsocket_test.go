//go:build linux

package listen

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// bound is a socket that these options make, in a folder that every user may enter.
func bound(t *testing.T, mode fs.FileMode, owner SocketOwner) string {
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
	listener, err := Open("unix://"+path, Socket{Mode: mode, Owner: owner})
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

// A socket has its permissions and its owner, and is private before: whatever the umask leaves
// open.
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

	expectSocket(t, bound(t, 0o600, KeepOwner), 0o600, os.Getuid(), os.Getgid())
	expectSocket(t, bound(t, 0o660, KeepOwner), 0o660, os.Getuid(), os.Getgid())
	syscall.Umask(0o777)
	expectSocket(t, bound(t, 0o666, KeepOwner), 0o666, os.Getuid(), os.Getgid())
	syscall.Umask(0)
	if os.Getuid() != 0 {
		t.Skip("the rest needs root: no other user may give files away")
	}
	expectSocket(t, bound(t, 0o600, SocketOwner{stranger, -1}), 0o600, stranger, os.Getgid())
	expectSocket(t, bound(t, 0o660, SocketOwner{-1, stranger}), 0o660, os.Getuid(), stranger)
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

// stranger is the uid and the gid of an unprivileged user.
const stranger = 65534

// dialling names the variable with the path to which a child of this test connects.
const dialling = "SPILLWAY_TEST_DIAL"

// Another user of the machine cannot connect, unless that user or its group owns the socket. The
// child runs this test binary.
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
		t.Skip("needs root, to run as another user")
	}
	f := func(name, path string, connects bool) {
		t.Helper()
		child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestUnixSocketRefusesStrangers$", "-test.v")
		child.Env = []string{dialling + "=" + path}
		child.Dir = "/"
		child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
		out, err := child.CombinedOutput()
		refused := strings.Contains(string(out), "EACCES true")
		if connected := err == nil && strings.Contains(string(out), "--- PASS"); connected != connects ||
			refused == connects {
			t.Errorf("%s: connected %v, want %v: %v\n%s", name, connected, connects, err, out)
		}
	}
	f("ours", bound(t, 0o600, KeepOwner), false)
	f("ours, and our group's", bound(t, 0o660, KeepOwner), false)
	f("the stranger's", bound(t, 0o600, SocketOwner{stranger, -1}), true)
	f("the stranger's group's, without permissions for the group", bound(t, 0o600, SocketOwner{-1, stranger}), false)
	f("the stranger's group's", bound(t, 0o660, SocketOwner{-1, stranger}), true)
	f("every user's", bound(t, 0o666, KeepOwner), true)
}

// A proxy that is not root, and is not dumpable, makes its socket, because what it opened is its
// own in /proc as well. The child is this very program.
func TestUnixSocketOfAnUndumpableProxy(t *testing.T) {
	const making = "SPILLWAY_TEST_MAKE"
	if path := os.Getenv(making); path != "" {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := deadSocket(path); err != nil {
			t.Fatal(err)
		}
		l, err := unixSocket{path: path, mode: 0o660, owner: KeepOwner}.listen()
		if err != nil {
			t.Fatal(err)
		}
		expectSocket(t, path, 0o660, os.Getuid(), os.Getgid())
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to run as another user")
	}
	dir, err := os.MkdirTemp("/tmp", "spillway-socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chown(dir, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestUnixSocketOfAnUndumpableProxy$")
	child.Env = []string{making + "=" + filepath.Join(dir, "s.sock")}
	child.Dir = "/"
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// What has the name of a socket already is left as it is: a link, where it leads, a file, and a
// socket of another kind.
func TestUnixSocketReplacesOnlyDeadSockets(t *testing.T) {
	precious := writeFile(t, "precious", "mine")
	fill := map[string]func(path string) error{
		"a link to a file":  func(path string) error { return os.Symlink(precious, path) },
		"a link to nothing": func(path string) error { return os.Symlink(path+"-none", path) },
		"a link to a dead socket": func(path string) error {
			return errors.Join(deadSocket(path+"-dead"), os.Symlink(path+"-dead", path))
		},
		"a file":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"a socket for datagrams": func(path string) error {
			conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err == nil {
				t.Cleanup(func() { _ = conn.Close() })
			}
			return err
		},
	}
	for name, put := range fill {
		path := filepath.Join(t.TempDir(), "s.sock")
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := (unixSocket{path: path, mode: 0o666, owner: KeepOwner}).listen(); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: %v, %v", name, l, err)
		}
		after, err := os.Lstat(path)
		if err != nil || !os.SameFile(before, after) || before.Mode() != after.Mode() {
			t.Errorf("%s: is now %v, %v", name, after, err)
		}
		expectFiles(t, filepath.Dir(path), 1, name)
	}
	if info, err := os.Stat(precious); err != nil || info.Mode() != 0o600 {
		t.Errorf("what the link leads to is now %v, %v", info, err)
	}
}

// deadSocket makes a socket that no process listens on.
func deadSocket(path string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	return l.Close()
}

// expectFiles checks how many files of a folder are not of the test's own making.
func expectFiles(t *testing.T, dir string, most int, what string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if strings.HasPrefix(f.Name(), ".spillway-") {
			t.Errorf("%s: %s was left behind", what, f.Name())
		}
	}
	if len(found) < most {
		t.Errorf("%s: %v", what, found)
	}
}

// Another user with write access to the folder, moving the files there, cannot have mode or owner
// of anything changed but of the socket itself.
func TestUnixSocketChangesNothingElse(t *testing.T) {
	dir := t.TempDir()
	precious := writeFile(t, "precious", "mine")
	path := filepath.Join(dir, "s.sock")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // puts links to a file in the place of all that comes, and takes them away again
		defer close(stopped)
		link, taken := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "taken")
		for {
			select {
			case <-stop:
				return
			default:
			}
			found, _ := os.ReadDir(dir)
			for _, f := range found {
				at := filepath.Join(dir, f.Name())
				if f.Type() == fs.ModeSymlink {
					_ = os.Remove(at)
				} else if os.Symlink(precious, link) == nil && os.Rename(at, taken) == nil {
					_ = os.Rename(link, at)
					_ = os.RemoveAll(taken)
				}
				_ = os.Remove(link)
			}
		}
	}()
	for range 2000 {
		if l, err := (unixSocket{path: path, mode: 0o666, owner: KeepOwner}).listen(); err == nil {
			_ = l.Close()
		}
	}
	close(stop)
	<-stopped
	if info, err := os.Stat(precious); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is now %v, %v", info, err)
	}
}

// Of proxies that find the same dead socket at once, one gets its name, and is listened to under
// it.
func TestUnixSocketOfManyProxies(t *testing.T) {
	for range 50 {
		path := filepath.Join(t.TempDir(), "s.sock")
		if err := deadSocket(path); err != nil {
			t.Fatal(err)
		}
		all := make(chan net.Listener, 8)
		var starts sync.WaitGroup
		for range cap(all) {
			starts.Go(func() {
				if l, err := (unixSocket{path: path, mode: 0o600, owner: KeepOwner}).listen(); err == nil {
					all <- l
				} else if !errors.Is(err, syscall.EADDRINUSE) {
					t.Error(err)
				}
			})
		}
		starts.Wait()
		if len(all) != 1 {
			t.Fatalf("%d listen", len(all))
		}
		l := <-all
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if _, err := l.Accept(); err != nil {
			t.Error(err)
		}
		expectFiles(t, filepath.Dir(path), 1, "after the start")
		_ = l.Close()
	}
}

// A proxy that ends leaves the socket of another one that has taken its name.
func TestUnixSocketEndsWithItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	first, err := unixSocket{path: path, mode: 0o600, owner: KeepOwner}.listen()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil { // by an operator, say
		t.Fatal(err)
	}
	second, err := unixSocket{path: path, mode: 0o600, owner: KeepOwner}.listen()
	if err != nil {
		t.Fatal(err)
	}
	if first.Addr().String() != path {
		t.Errorf("listens on %s", first.Addr())
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the second one cannot be reached any more: %v", err)
	}
	_ = conn.Close()
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the second one left its socket: %v", err)
	}
}

// A folder that is replaced after it was looked up has no part in what follows.
func TestUnixSocketStaysInItsFolder(t *testing.T) {
	dir := t.TempDir()
	ours, other := filepath.Join(dir, "ours"), filepath.Join(dir, "other")
	for _, d := range []string{ours, other} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(ours, "s.sock")
	l, err := unixSocket{path: path, mode: 0o600, owner: KeepOwner}.listen()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(ours, ours+"-moved"), os.Symlink(other, ours),
		os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(other, "s.sock")); err != nil {
		t.Errorf("a file elsewhere was removed: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(ours+"-moved", "s.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// A path that clients could not connect to is refused, and one that they just can is served.
func TestUnixSocketPathLength(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "s") // short, whatever TMPDIR is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := dir + "/" + strings.Repeat("x", maxSocketPath-len(dir)-1)
	if err := CheckPlainAddress(UnixPrefix + path + "x"); err == nil ||
		!strings.Contains(err.Error(), "has a path of 108 bytes") {
		t.Errorf("a longer one: %v", err)
	}
	if err := CheckPlainAddress(UnixPrefix + path); err != nil {
		t.Error(err)
	}
	l, err := unixSocket{path: path, mode: 0o600, owner: KeepOwner}.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	for _, bad := range []string{"@abstract", "\x00abstract", "/run/../", "run/s"} {
		if CheckPlainAddress(UnixPrefix+bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if l, err := (unixSocket{path: dir + "/a\x00b", mode: 0o600, owner: KeepOwner}).listen(); err == nil {
		t.Errorf("a name with a NUL: %v", l.Addr())
	}
}

func TestParseOwner(t *testing.T) {
	f := func(text string, uid, gid int) {
		t.Helper()
		got, err := ParseOwner(text)
		if err != nil || got != (SocketOwner{uid, gid}) {
			t.Errorf("ParseOwner(%q) = %v, %v; want %d:%d", text, got, err, uid, gid)
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
		if got, err := ParseOwner(bad); err == nil {
			t.Errorf("ParseOwner(%q) = %v, want an error", bad, got)
		}
	}
}
