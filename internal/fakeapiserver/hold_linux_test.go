package fakeapiserver

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// While a server is down, its port refuses connections, and no listener on port 0 is given that
// port.
func TestHold(t *testing.T) {
	s := server(t, Options{})
	at := s.listener.addr.(*net.TCPAddr)
	only := func(_, _ string, c syscall.RawConn) error { // as if there were no other port
		var err error
		controlled := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE,
				at.Port<<16|at.Port) // #nosec G115 -- a descriptor
		})
		return errors.Join(controlled, err)
	}
	for range 2 {
		s.Down()
		for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
			l, err := (&net.ListenConfig{Control: only}).Listen(t.Context(), "tcp4", address)
			switch {
			case err == nil:
				l.Close()
				t.Errorf("%s is given the port of a server that is down", address)
			case errors.Is(err, unix.ENOPROTOOPT):
				t.Skip("this kernel knows no range of ports")
			case !errors.Is(err, unix.EADDRINUSE):
				t.Errorf("%s: %v", address, err)
			}
		}
		if conn, err := net.Dial("tcp4", at.String()); !errors.Is(err, unix.ECONNREFUSED) {
			if err == nil {
				conn.Close()
			}
			t.Errorf("dialled a server that is down: %v", err)
		}
		if err := s.Up(); err != nil {
			t.Fatal(err)
		}
		if l := get(t, s, "/api/v1/configmaps"); l.Status != 200 {
			t.Errorf("after that: %s", l.Body)
		}
	}
}
