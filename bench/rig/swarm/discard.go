package swarm

import (
	"bytes"
	"fmt"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"spillway/bench/rig"
)

// Discard reads the answer to a GET of a plain server without having it copied, and returns the
// length of its body.
func Discard(server rig.Server, target string) (int64, error) {
	w, rest, err := open(Options{Server: server, Accept: "application/json"}, target, server.Token)
	if err != nil {
		return 0, err
	}
	defer w.sock.Close()
	if w.length < 0 {
		return 0, fmt.Errorf("%s: the answer does not tell its length", target)
	}
	got := int64(len(rest))
	var unused [1 << 20]byte
	for got < w.length {
		n, err := discard(w.sock.fd, unused[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return got, fmt.Errorf("%s: after %d bytes of %d: %w", target, got, w.length, err)
		}
		got += int64(n)
	}
	return got, nil
}

// discard throws away what has arrived, as much as would fit. MSG_TRUNC makes TCP copy none of it
// (tcp(7)).
func discard(fd int, unused []byte) (int, error) {
	n, _, failed := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&unused[0])),
		uintptr(len(unused)), unix.MSG_TRUNC, 0, 0)
	if failed != 0 {
		return 0, failed
	}
	return int(n), nil
}

// contentLength is what the head of an answer says of the length of its body, -1 if nothing.
func contentLength(head []byte) int64 {
	for line := range bytes.Lines(head) {
		if name, value, found := bytes.Cut(line, []byte(":")); found && bytes.EqualFold(name, []byte("Content-Length")) {
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}
