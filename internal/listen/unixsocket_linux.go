package listen

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socketListener listens on a unix socket and owns its name.
//
// Invariant: whatever other users put into the folder of the socket, the proxy changes owner, mode
// and name of nothing but its own socket. So the socket is made in a folder inside, which no other
// user may enter, and gets its owner and mode there. Its name comes last: a client that finds the
// name finds a socket that listens, and so does another proxy that looks whether the socket is
// dead. Both folders are opened once, and names are looked up in the opened folders.
type socketListener struct {
	*net.UnixListener
	address net.Addr
	in      folder
	name    string
	file    fs.FileInfo // of the socket
	close   sync.Once
}

// folder is an opened folder.
type folder struct{ *os.File }

// at is a name that leads to a file in the folder, whatever becomes of the folder's own name.
func (f folder) at(name string) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd())), name)
}

// move gives a file a name that nothing has yet.
func (f folder) move(name string, to folder, as string) error {
	return unix.Renameat2(int(f.Fd()), name, int(to.Fd()), as, unix.RENAME_NOREPLACE)
}

// lock excludes other proxies. It waits for a second at most: any user with read access to a folder
// may lock it, and must not prevent the start of the proxy.
func (f folder) lock() {
	for range 100 {
		if !errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// listen makes the socket. A socket that no process listens on any more is replaced.
func (s unixSocket) listen() (net.Listener, error) {
	in, err := os.Open(filepath.Dir(s.path))
	if err != nil {
		return nil, err
	}
	l := &socketListener{address: &net.UnixAddr{Name: s.path, Net: "unix"}, in: folder{in}, name: filepath.Base(s.path)}
	if err := l.listen(s); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

func (l *socketListener) listen(s unixSocket) error {
	unique := ".spillway-" + rand.Text()
	private, err := l.in.makePrivate(unique)
	if err != nil {
		return err
	}
	defer private.Close()
	defer os.Remove(l.in.at(unique)) // after what is in it
	defer os.Remove(private.at(unique))
	config := net.ListenConfig{Control: bindPrivate}
	listener, err := config.Listen(context.Background(), "unix", private.at(unique))
	if err != nil {
		return err
	}
	l.UnixListener = listener.(*net.UnixListener)
	l.SetUnlinkOnClose(false)
	if err := s.admitOwner(private.at(unique)); err != nil {
		return err
	}
	if l.file, err = os.Lstat(private.at(unique)); err != nil {
		return err
	}
	if err = private.move(unique, l.in, l.name); errors.Is(err, fs.ErrExist) {
		return l.replace(private, unique)
	}
	return err
}

// makePrivate makes a folder that no other user may enter.
func (f folder) makePrivate(name string) (folder, error) {
	if err := os.Mkdir(f.at(name), 0o700); err != nil {
		return folder{}, err
	}
	private, err := os.OpenFile(f.at(name), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		_ = os.Remove(f.at(name))
		return folder{}, err
	}
	info, err := private.Stat()
	user := uint32(os.Geteuid()) // #nosec G115 -- user ids are 32 bits
	if err == nil && (info.Sys().(*syscall.Stat_t).Uid != user || info.Mode().Perm()&0o077 != 0) {
		err = errors.New("another user has replaced a folder that was made for it")
	}
	if err == nil && info.Mode().Perm() != 0o700 { // the umask took something away
		err = private.Chmod(0o700)
	}
	if err != nil {
		_ = private.Close()
		return folder{}, err
	}
	return folder{private}, nil
}

// admitOwner gives a socket its owner, and then its mode.
func (s unixSocket) admitOwner(path string) error {
	if s.owner != KeepOwner {
		if err := os.Lchown(path, s.owner.UID, s.owner.GID); err != nil {
			return fmt.Errorf("%w: %w", ErrOwner, syscallError(err))
		}
	}
	if err := os.Chmod(path, s.mode); err != nil {
		return fmt.Errorf("%w: %w", ErrMode, syscallError(err))
	}
	return nil
}

// syscallError is an error without the name of a temporary file.
func syscallError(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// replace gives the socket the name of a dead one. Anything else keeps the name: a file, a link, a
// socket that is listened on, or one that came while the dead one was looked at. Proxies do this
// one after another.
func (l *socketListener) replace(private folder, unique string) error {
	l.in.lock()
	defer unix.Flock(int(l.in.Fd()), unix.LOCK_UN)
	old, err := os.Lstat(l.in.at(l.name))
	if err != nil || old.Mode().Type() != fs.ModeSocket || !isDead(l.in.at(l.name)) {
		return syscall.EADDRINUSE
	}
	aside := unique + "-old"
	if l.in.move(l.name, private, aside) != nil {
		return syscall.EADDRINUSE
	}
	if got, err := os.Lstat(private.at(aside)); err != nil || !os.SameFile(old, got) {
		_ = private.move(aside, l.in, l.name)
		return syscall.EADDRINUSE
	}
	_ = os.Remove(private.at(aside))
	if private.move(unique, l.in, l.name) != nil {
		return syscall.EADDRINUSE
	}
	return nil
}

// isDead reports that no process listens on a socket.
func isDead(path string) bool {
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Addr implements net.Listener.
func (l *socketListener) Addr() net.Addr { return l.address }

// Close implements net.Listener. A file that has taken the name since keeps it.
func (l *socketListener) Close() error {
	err := net.ErrClosed
	l.close.Do(func() {
		if err = nil; l.UnixListener != nil {
			err = l.UnixListener.Close()
		}
		if now, failed := os.Lstat(l.in.at(l.name)); failed == nil && l.file != nil && os.SameFile(now, l.file) {
			_ = os.Remove(l.in.at(l.name))
		}
		_ = l.in.Close()
	})
	return err
}

// bindPrivate makes the file of a socket private from its first moment: Linux gives it the
// permissions that the socket has when it is bound. The umask would do it, too, but for every file
// that any thread makes meanwhile.
func bindPrivate(_, _ string, raw syscall.RawConn) error {
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), uint32(PrivateMode)) }); err != nil {
		return err
	}
	return failed
}
