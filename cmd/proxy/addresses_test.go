package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestBindProblems(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := writeFile(t, "not-a-socket", "precious")

	f := func(o *options, flag, address, want string) {
		t.Helper()
		listener, err := o.bind(flag, address)
		if err == nil {
			listener.Close()
			t.Fatalf("bind(%s) succeeded, want %s", address, want)
		}
		if err.Error() != want {
			t.Errorf("bind(%s) = %q, want %q", address, err, want)
		}
	}
	port := taken.Addr().String()
	f(newOptions(), "listen", port, "--listen="+port+": is in use by another process; stop that one, or choose another address")
	fromEnv := newOptions()
	fromEnv.origins["metrics-listen"] = "SPILLWAY_METRICS_LISTEN="
	f(fromEnv, "metrics-listen", port, "SPILLWAY_METRICS_LISTEN="+port+": is in use by another process; stop that one, or choose another address")
	f(newOptions(), "listen-tls", "192.0.2.1:0", "--listen-tls=192.0.2.1:0: is not an address of this machine")
	f(newOptions(), "listen", "unix://"+file, "--listen=unix://"+file+": is in use by another process; stop that one, or choose another address")
	if text, err := os.ReadFile(file); err != nil || string(text) != "precious" {
		t.Errorf("a file in the way is now %q, %v", text, err)
	}
}

func TestBindOff(t *testing.T) {
	if listener, err := newOptions().bind("listen", ""); listener != nil || err != nil {
		t.Errorf("bind of an empty address = %v, %v", listener, err)
	}
}

// A socket whose process was killed is replaced; one that is served is not.
func TestBindUnix(t *testing.T) {
	address := "unix://" + filepath.Join(t.TempDir(), "s.sock")
	first, err := newOptions().bind("listen", address)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := newOptions().bind("listen", address); err == nil {
		second.Close()
		t.Fatal("took over a socket that is served")
	}
	defer first.Close()
	if err := first.(*socketListener).UnixListener.Close(); err != nil { // as if the process had been killed
		t.Fatal(err)
	}
	third, err := newOptions().bind("listen", address)
	if err != nil {
		t.Fatalf("a dead socket is in the way: %v", err)
	}
	third.Close()
}

func TestLoopback(t *testing.T) {
	f := func(host string, want bool) {
		t.Helper()
		if got := isLoopback(host); got != want {
			t.Errorf("isLoopback(%q) = %v", host, got)
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
	if isLoopbackAddr(&net.TCPAddr{IP: net.IPv6unspecified}) || !isLoopbackAddr(&net.TCPAddr{IP: net.IPv6loopback}) || isLoopbackAddr(&net.UnixAddr{}) {
		t.Error("isLoopbackAddr")
	}
}
