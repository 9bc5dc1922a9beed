package fakeapiserver

import (
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// heldPort is a socket that has a port of 127.0.0.1 and does not listen: connections to the port
// are refused, the kernel gives it to no process that binds any port, and a process that binds it
// by number may listen there besides. This is what SO_REUSEADDR means to Linux.
type heldPort struct{ fd int }

// hold holds a free port.
func hold() (*heldPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	h := &heldPort{fd}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		h.release()
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		h.release()
		return nil, os.NewSyscallError("bind", err)
	}
	return h, nil
}

// listen listens at the port. At most one listener may do so at a time.
func (h *heldPort) listen() (net.Listener, error) {
	name, err := unix.Getsockname(h.fd)
	if err != nil {
		return nil, os.NewSyscallError("getsockname", err)
	}
	return net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*unix.SockaddrInet4).Port)))
}

func (h *heldPort) release() { _ = unix.Close(h.fd) }
