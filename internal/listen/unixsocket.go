package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"strconv"
	"strings"
)

// unixSocket is the path of a socket file, its mode and its owner. A process may connect if it may
// write to the file. The peer's uid is no identity: a process may carry the requests of any user
// (design D12).
type unixSocket struct {
	path  string
	mode  fs.FileMode
	owner SocketOwner
}

// PrivateMode admits the proxy's own user and root alone.
const PrivateMode fs.FileMode = 0o600

// maxSocketPath is the longest name that a client can connect to, in bytes.
const maxSocketPath = 107

// ErrOwner and ErrMode say which setting of a socket could not be had.
var (
	ErrOwner = errors.New("owner")
	ErrMode  = errors.New("mode")
)

// SocketOwner is a user and a group; -1 leaves what the file has.
type SocketOwner struct{ UID, GID int }

// KeepOwner is the user and group that the proxy runs as.
var KeepOwner = SocketOwner{-1, -1}

// ParseOwner reads user, user:group or :group, each a name or a number.
func ParseOwner(text string) (SocketOwner, error) {
	owner := KeepOwner
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
		owner.UID = uid
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
		owner.GID = gid
	}
	return owner, nil
}

// idOf is a number, or the one that a name stands for. A number needs no entry in a database, as in
// containers.
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

// ParseMode reads the permissions of a socket as chmod takes them, in octal.
func ParseMode(text string) (fs.FileMode, error) {
	n, err := strconv.ParseUint(text, 8, 12)
	if err != nil || n > 0o777 || n&0o600 != 0o600 || len(text) < 3 {
		return 0, errors.New("must be permissions in octal that let the owner read and write, such as 0600 or 0660")
	}
	return fs.FileMode(n), nil
}
