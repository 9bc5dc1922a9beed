package listen

import (
	"net"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"spillway/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var writeFile = testutil.WriteFile

// A socket whose process was killed is replaced; one that is served is not.
func TestDeadSocketIsReplaced(t *testing.T) {
	address := "unix://" + filepath.Join(t.TempDir(), "s.sock")
	first, err := Open(address, Socket{Mode: PrivateMode, Owner: KeepOwner})
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Open(address, Socket{Mode: PrivateMode, Owner: KeepOwner}); err == nil {
		second.Close()
		t.Fatal("took over a socket that is served")
	}
	defer first.Close()
	if err := first.(*socketListener).UnixListener.Close(); err != nil { // as if the process had been killed
		t.Fatal(err)
	}
	third, err := Open(address, Socket{Mode: PrivateMode, Owner: KeepOwner})
	if err != nil {
		t.Fatalf("a dead socket is in the way: %v", err)
	}
	third.Close()
}

func TestLoopback(t *testing.T) {
	f := func(host string, want bool) {
		t.Helper()
		if got := IsLoopback(host); got != want {
			t.Errorf("IsLoopback(%q) = %v", host, got)
		}
	}
	f("127.0.0.1", true)
	f("127.8.9.10", true)
	f("::1", true)
	f("::ffff:127.0.0.1", true)
	f("localhost", true)
	f("", false)
	f("0.0.0.0", false)
	f("::", false)
	f("localhost.example.com", false)
	f("127.0.0.1.nip.io", false)
	if IsLoopbackAddr(&net.TCPAddr{IP: net.IPv6unspecified}) || !IsLoopbackAddr(&net.TCPAddr{IP: net.IPv6loopback}) ||
		IsLoopbackAddr(&net.UnixAddr{}) {
		t.Error("IsLoopbackAddr")
	}
}
