package main

import (
	"net"
	"os"
	"testing"

	"spillway/internal/config"
)

func TestBindProblems(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := writeFile(t, "not-a-socket", "precious")

	f := func(o *config.Settings, flag, address, want string) {
		t.Helper()
		listener, err := bind(o, flag, address)
		if err == nil {
			listener.Close()
			t.Fatalf("bind(%s) succeeded, want %s", address, want)
		}
		if err.Error() != want {
			t.Errorf("bind(%s) = %q, want %q", address, err, want)
		}
	}
	port := taken.Addr().String()
	f(config.New(), "listen", port, "--listen="+port+
		": is in use by another process; stop that one, or choose another address")
	f(start([]string{"SPILLWAY_METRICS_LISTEN=" + port}).options, "metrics-listen", port, "SPILLWAY_METRICS_LISTEN="+port+
		": is in use by another process; stop that one, or choose another address")
	f(config.New(), "listen-tls", "192.0.2.1:0", "--listen-tls=192.0.2.1:0: is not an address of this machine")
	f(config.New(), "listen", "unix://"+file, "--listen=unix://"+file+
		": is in use by another process; stop that one, or choose another address")
	if text, err := os.ReadFile(file); err != nil || string(text) != "precious" {
		t.Errorf("a file in the way is now %q, %v", text, err)
	}
}

func TestBindOff(t *testing.T) {
	if listener, err := bind(config.New(), "listen", ""); listener != nil || err != nil {
		t.Errorf("bind of an empty address = %v, %v", listener, err)
	}
}
