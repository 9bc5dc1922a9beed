package wire

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A client on the wire reaches a server on loopback, both ways and with more than a packet holds,
// and is not on loopback itself.
func TestClientOnTheWireReachesLoopback(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); conn.Close() }()
		}
	}()
	w, err := New()
	if lacking(err) {
		t.Skipf("this takes root and a kernel with TUN devices: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var conn net.Conn
	if err := w.Enter(func() (err error) {
		conn, err = net.Dial("tcp4", listener.Addr().String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if host, _, _ := net.SplitHostPort(conn.LocalAddr().String()); host != there.IP.String() {
		t.Errorf("the client has the address %s", host)
	}
	const size = 1 << 20
	go func() { _, _ = conn.Write(make([]byte, size)) }()
	if n, err := io.ReadFull(conn, make([]byte, size)); err != nil {
		t.Errorf("after %d bytes of %d: %v", n, size, err)
	}
}

// lacking reports that an error says what we may not do here, or what there is not.
func lacking(err error) bool {
	return slices.ContainsFunc([]error{fs.ErrPermission, fs.ErrNotExist, unix.ENODEV, unix.EROFS}, func(one error) bool {
		return errors.Is(err, one)
	})
}

// Without a wire, clients are where we are.
func TestWithoutWireClientsAreLocal(t *testing.T) {
	var w *Wire
	entered := false
	if err := w.Enter(func() error { entered = true; return nil }); err != nil || !entered {
		t.Errorf("entered %t: %v", entered, err)
	}
	w.Close()
}
