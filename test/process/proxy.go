package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Repository is the root of the module that is tested: the nearest folder upwards that holds the proxy's source.
func Repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "proxy", "main.go")); err == nil {
			return dir
		}
	}
	t.Fatal("not inside the repository")
	return ""
}

// BuildProxy compiles what is in the repository and returns the program's path.
func BuildProxy(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "spillway")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/proxy")
	build.Dir = Repository(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the proxy: %v\n%s", err, out)
	}
	return binary
}

// Proxy is a running Spillway: the URLs of its listeners, empty where it has none.
type Proxy struct {
	Plain, TLS, Metrics string
	Log                 *Log
	child               *Child
}

// stopGrace is how long a proxy may take to drain.
const stopGrace = 10 * time.Second

// Stop drains the proxy and returns when it is gone. It is idempotent.
func (p *Proxy) Stop() { p.child.Stop(stopGrace) }

// Kill ends the proxy as a crash does, and returns when it is gone.
func (p *Proxy) Kill() { p.child.Kill() }

// Flags is the environment variable with flags that every proxy gets before those of its test, such as --writers=off.
const Flags = "PROXY_FLAGS"

// StartProxy starts the binary and returns when it is ready. It ends with the test; its log is shown if the test fails.
func StartProxy(t *testing.T, binary string, args ...string) *Proxy {
	t.Helper()
	usual := append([]string{"--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--log-level=debug"}, strings.Fields(os.Getenv(Flags))...)
	args = append(usual, args...)
	log := NewLog(t)
	child, err := Start(exec.Command(binary, args...), nil, log.File)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		child.Stop(stopGrace)
		if t.Failed() {
			log.Show(t)
		}
	})
	p := &Proxy{child: child, Log: log}
	Awaiting(t, "the proxy to be ready", func(ctx context.Context) error {
		if child.Ended() {
			log.Show(t)
			t.Fatal("the proxy ended at once")
		}
		p.readAddresses(log.Text())
		if p.Metrics == "" {
			return fmt.Errorf("no address in its log yet")
		}
		return ExpectOK(ctx, p.Metrics+"/readyz")
	})
	return p
}

// readAddresses finds out where a proxy serves: it says so in its log.
func (p *Proxy) readAddresses(log []byte) {
	for line := range bytes.Lines(log) {
		var entry struct{ Msg, Address string }
		if json.Unmarshal(line, &entry) != nil || entry.Address == "" {
			continue
		}
		switch entry.Msg {
		case "serving plain HTTP":
			p.Plain = "http://" + entry.Address
		case "serving HTTPS":
			p.TLS = "https://" + entry.Address
		case "serving health and metrics":
			p.Metrics = "http://" + entry.Address
		}
	}
}

// MostResident is the most memory that the proxy has had so far, in bytes: VmHWM of proc(5).
func (p *Proxy) MostResident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.child.cmd.Process.Pid))
	if err != nil {
		t.Fatalf("the proxy is gone: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		var n int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &n); err == nil {
			return n << 10
		}
	}
	t.Fatal("the proxy's status does not tell VmHWM")
	return 0
}
