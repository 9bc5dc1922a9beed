// Package listen opens the listeners of the proxy: TCP addresses and unix sockets, and the
// certificates that they present.
//
// Invariant: a unix socket is private from its first moment until it has its owner and mode, and
// nothing else in its folder changes, whatever other users put there. net.Listen alone would leave
// the socket open to every user between bind and chmod.
package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// UnixPrefix is in front of the path of a unix socket, where another address is host:port.
const UnixPrefix = "unix://"

// HostPort is an address of TCP. Host may be a name or an IP address.
type HostPort struct{ Host, Port string }

// SplitAddress reads host:port, where host may be empty (all addresses).
func SplitAddress(address string) (HostPort, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil && isPort(address) {
		return HostPort{}, fmt.Errorf("must be host:port; did you mean :%s?", address)
	}
	if err != nil {
		return HostPort{}, errors.New("must be host:port, such as 127.0.0.1:8001 or :6443")
	}
	if !isPort(port) {
		return HostPort{}, errors.New("the port must be a number from 0 to 65535")
	}
	return HostPort{host, port}, nil
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// CheckPlainAddress accepts what only this machine can reach: the plain listener does not know its
// clients.
func CheckPlainAddress(address string) error {
	if path, ok := strings.CutPrefix(address, UnixPrefix); ok {
		if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
			return errors.New("must be unix:// and an absolute path, such as unix:///run/spillway.sock")
		}
		if len(path) > maxSocketPath {
			return fmt.Errorf("has a path of %d bytes: a unix socket may have %d", len(path), maxSocketPath)
		}
		return nil
	}
	if isPort(address) {
		return fmt.Errorf("must be host:port; did you mean 127.0.0.1:%s?", address)
	}
	split, err := SplitAddress(address)
	if err != nil {
		return err
	}
	if !IsLoopback(split.Host) {
		return errors.New("plain HTTP is served on loopback only: use 127.0.0.1, [::1], localhost or unix:///path here, " +
			"and --listen-tls for other machines")
	}
	return nil
}

// IsIP reports that host is an IP address, not a name.
func IsIP(host string) bool { return net.ParseIP(host) != nil }

// IsLoopback reports that host is a loopback address, or the name that stands for one.
func IsLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Socket is what Open gives a unix socket.
type Socket struct {
	Mode  fs.FileMode
	Owner SocketOwner
}

// Open listens on a TCP address, or on the unix socket of a path behind UnixPrefix. An error wraps
// ErrOwner or ErrMode if the socket could not be given what s says.
func Open(address string, s Socket) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, UnixPrefix); ok {
		return unixSocket{path: path, mode: s.Mode, owner: s.Owner}.listen()
	}
	return net.Listen("tcp", address)
}

// Problem says why Open failed, and what to do.
func Problem(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "is in use by another process; stop that one, or choose another address"
	case errors.Is(err, syscall.EACCES):
		return "may not be opened by this user; choose a port from 1024 on, or a directory that is yours"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "is not an address of this machine"
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return fmt.Sprintf("cannot be opened: %v", op.Err)
	}
	return fmt.Sprintf("cannot be opened: %v", err)
}

// IsLoopbackAddr looks at the address that was bound, not at the one that was requested: a name may
// resolve to any address.
func IsLoopbackAddr(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
