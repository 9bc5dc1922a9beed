package testutil

import (
	"net"
	"testing"
)

// RefusingAddress is one that refuses connections for as long as the test runs. It is the near end
// of a connection: the port of a listener that was closed could be given to another server by the
// time that it is used.
func RefusingAddress(t testing.TB) string {
	t.Helper()
	conn, err := net.Dial("tcp4", SilentAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().String()
}

// SilentAddress is an address at which connections are made, and nothing is ever read or answered.
func SilentAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}
