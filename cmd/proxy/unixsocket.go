package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// unixSocket is where a socket file is, and who may connect to it: whoever may write to the file. Who connects is not asked who he is: a
// process on the other end says nothing of whose request it carries, so the peer's uid is no identity (design D12).
type unixSocket struct {
	path  string
	mode  fs.FileMode
	owner socketOwner
}

// privateMode lets nobody connect but the proxy's own user, and root.
const privateMode fs.FileMode = 0o600

// listen makes the socket. It is private from its first moment (bindPrivate), and is opened to others only when it has its owner. A socket
// that nobody listens on any more is replaced.
func (s unixSocket) listen() (net.Listener, error) {
	removeDeadSocket(s.path)
	config := net.ListenConfig{Control: bindPrivate}
	listener, err := config.Listen(context.Background(), "unix", s.path)
	if err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		_ = listener.Close()
		return nil, err
	}
	return listener, nil
}

// errSocketOwner and errSocketMode say which setting of a socket could not be had.
var (
	errSocketOwner = errors.New("owner")
	errSocketMode  = errors.New("mode")
)

// open gives the socket its owner, and then its mode. Names are not followed where they lead elsewhere: only whoever may write to the
// folder can put something else in this place, and he is not to have it changed by us.
func (s unixSocket) open() error {
	if s.owner != keepOwner {
		if err := os.Lchown(s.path, s.owner.uid, s.owner.gid); err != nil {
			return fmt.Errorf("%w: %w", errSocketOwner, err)
		}
	}
	info, err := os.Lstat(s.path)
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		err = errors.New("is no longer a socket")
	}
	if err == nil && info.Mode().Perm() != s.mode {
		err = os.Chmod(s.path, s.mode)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errSocketMode, err)
	}
	return nil
}

// removeDeadSocket removes the socket file that a process which was killed left behind. It removes nothing else.
func removeDeadSocket(path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path) // if it stays, Listen says so
	}
}

// socketOwner is a user and a group; -1 leaves what the file has.
type socketOwner struct{ uid, gid int }

// keepOwner is the user and group that the proxy runs as.
var keepOwner = socketOwner{-1, -1}

// parseOwner reads user, user:group or :group, each a name or a number.
func parseOwner(text string) (socketOwner, error) {
	owner := keepOwner
	if text == "" {
		return owner, nil
	}
	name, group, grouped := strings.Cut(text, ":")
	if name == "" && group == "" || grouped && group == "" {
		return owner, errors.New("must be user, user:group or :group, such as root:docker or 1000:1000")
	}
	if name != "" {
		uid, err := idOf(name, func() (string, error) {
			u, err := user.Lookup(name)
			if err != nil {
				return "", err
			}
			return u.Uid, nil
		})
		if err != nil {
			return owner, fmt.Errorf("there is no user %q on this machine; name one, or its number", name)
		}
		owner.uid = uid
	}
	if group != "" {
		gid, err := idOf(group, func() (string, error) {
			g, err := user.LookupGroup(group)
			if err != nil {
				return "", err
			}
			return g.Gid, nil
		})
		if err != nil {
			return owner, fmt.Errorf("there is no group %q on this machine; name one, or its number", group)
		}
		owner.gid = gid
	}
	return owner, nil
}

// idOf is a number, or the one that a name stands for. A number need not belong to anybody, as in containers.
func idOf(text string, lookup func() (string, error)) (int, error) {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return int(n), nil
	}
	found, err := lookup()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(found, 10, 31)
	return int(n), err
}

// parseMode reads the permissions of a socket as chmod takes them, in octal.
func parseMode(text string) (fs.FileMode, error) {
	n, err := strconv.ParseUint(text, 8, 12)
	if err != nil || n > 0o777 || n&0o600 != 0o600 || len(text) < 3 {
		return 0, errors.New("must be permissions in octal that let the owner read and write, such as 0600 or 0660")
	}
	return fs.FileMode(n), nil
}
