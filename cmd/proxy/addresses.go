package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
)

const unixPrefix = "unix://"

type hostPort struct{ host, port string }

// splitAddress reads host:port, where host may be empty (all addresses).
func splitAddress(address string) (hostPort, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return hostPort{}, errors.New("must be host:port, such as 127.0.0.1:8001")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return hostPort{}, errors.New("the port must be a number from 0 to 65535")
	}
	return hostPort{host, port}, nil
}

// checkPlainAddress accepts what only this machine can reach: the plain listener does not know who is asking.
func checkPlainAddress(address string) error {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
			return errors.New("must be unix:// and an absolute path, such as unix:///run/spillway.sock")
		}
		if len(path) > maxSocketPath {
			return fmt.Errorf("has a path of %d bytes: a unix socket may have %d", len(path), maxSocketPath)
		}
		return nil
	}
	split, err := splitAddress(address)
	if err != nil {
		return err
	}
	if !isLoopback(split.host) {
		return errors.New("plain HTTP is served on loopback only: use 127.0.0.1, [::1], localhost or unix:///path here, and --listen-tls " +
			"for other machines")
	}
	return nil
}

func isIP(host string) bool { return net.ParseIP(host) != nil }

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// bind opens the listener of the flag named ("listen", "listen-tls", "metrics-listen") at its address. It returns nil when the
// address is empty: the listener is off. Errors are one line that names the setting and the remedy.
func (o *options) bind(flag, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	var listener net.Listener
	var err error
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		listener, err = unixSocket{path: path, mode: o.socketMode, owner: o.socketOwner}.listen()
	} else {
		listener, err = net.Listen("tcp", address)
	}
	switch {
	case errors.Is(err, errSocketOwner):
		return nil, o.refuse("listen-owner", o.listenOwner, "the socket cannot be given to it: "+cause(err)+"; only root may, or its user to a group that he is in")
	case errors.Is(err, errSocketMode):
		return nil, o.refuse("listen-mode", o.listenMode, "the socket cannot have it: "+cause(err))
	case err != nil:
		return nil, o.refuse(flag, address, bindProblem(err))
	}
	return listener, nil
}

func bindProblem(err error) string {
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
