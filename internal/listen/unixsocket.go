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

// ErrOwner and ErrMode say which setting of a socket could not be made.
var (
	ErrOwner = errors.New("owner")
	ErrMode  = errors.New("mode")
)

// SocketOwner is a user and a group.
type SocketOwner struct{ UID, GID int }

// keepID leaves the user or the group that a file has, as for chown(2).
const keepID = -1

// KeepOwner is the user and group that the proxy runs as.
var KeepOwner = SocketOwner{keepID, keepID}

// ParseOwner reads user, user:group or :group, each a name or a number.
func ParseOwner(text string) (SocketOwner, error) {
	if text == "" {
		return KeepOwner, nil
	}
	name, group, hasGroup := strings.Cut(text, ":")
	if name == "" && group == "" || hasGroup && group == "" {
		return KeepOwner, errors.New("must be user, user:group or :group, such as root:docker or 1000:1000")
	}
	uid, err := parseID("user", name, func() (string, error) {
		u, err := user.Lookup(name)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	})
	if err != nil {
		return KeepOwner, err
	}
	gid, err := parseID("group", group, func() (string, error) {
		g, err := user.LookupGroup(group)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	})
	return SocketOwner{uid, gid}, err
}

// parseID reads a number, or a name that lookup finds the number of; keepID if text is empty. A
// number needs no entry in a database, as in containers.
func parseID(kind, text string, lookup func() (string, error)) (int, error) {
	if text == "" {
		return keepID, nil
	}
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return int(n), nil
	}
	found, err := lookup()
	if err == nil {
		var n uint64
		if n, err = strconv.ParseUint(found, 10, 31); err == nil {
			return int(n), nil
		}
	}
	return keepID, fmt.Errorf("there is no %s %q on this machine; name one, or its number", kind, text)
}

// ParseMode reads the permissions of a socket as chmod takes them, in octal.
func ParseMode(text string) (fs.FileMode, error) {
	n, err := strconv.ParseUint(text, 8, 12)
	if err != nil || n > 0o777 || n&0o600 != 0o600 || len(text) < 3 {
		return 0, errors.New("must be permissions in octal that let the owner read and write, such as 0600 or 0660")
	}
	return fs.FileMode(n), nil
}
