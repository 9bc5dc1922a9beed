package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Repository is the root of the module that is tested: the nearest folder upwards that holds the
// proxy's source.
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

// Tags is the environment variable with the build tags of every proxy that is tested, such as
// portable: each watch has a goroutine, as outside Linux.
const Tags = "PROXY_TAGS"

// BuildProxy compiles what is in the repository and returns the program's path. flags are the
// build's.
func BuildProxy(t *testing.T, flags ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "spillway")
	args := append([]string{"build", "-tags=" + os.Getenv(Tags)}, flags...)
	args = append(args, "-o", binary, "./cmd/proxy")
	build := exec.CommandContext(t.Context(), "go", args...)
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

// StartProxy starts the binary and returns when it is ready. It ends with the test; its log is
// shown if the test fails.
func StartProxy(t *testing.T, binary string, args ...string) *Proxy {
	t.Helper()
	p := LaunchProxy(t, binary, args...)
	p.AwaitReady(t)
	return p
}

// LaunchProxy is StartProxy for a proxy that may have to wait for its upstream before it is ready,
// and says where it serves only then. AwaitReady is next.
func LaunchProxy(t *testing.T, binary string, args ...string) *Proxy {
	t.Helper()
	args = append([]string{"--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--log-level=debug"}, args...)
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
	return &Proxy{child: child, Log: log}
}

// AwaitReady returns when the proxy is ready, and knows its addresses then.
func (p *Proxy) AwaitReady(t *testing.T) {
	t.Helper()
	Awaiting(t, "the proxy to be ready", func(ctx context.Context) error {
		if p.child.Ended() {
			p.Log.Show(t)
			t.Fatalf("the proxy ended: %v", p.child.Err)
		}
		a := p.Log.Addresses()
		if a.Metrics == "" {
			return fmt.Errorf("no address in its log yet")
		}
		p.Metrics = "http://" + a.Metrics
		if a.Plain != "" {
			p.Plain = "http://" + a.Plain
		}
		if a.TLS != "" {
			p.TLS = "https://" + a.TLS
		}
		return ExpectOK(ctx, p.Metrics+"/readyz")
	})
}

// Resident is the memory that the proxy has now, in bytes: the second figure of statm of proc(5).
func (p *Proxy) Resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.child.cmd.Process.Pid))
	if err != nil {
		t.Fatalf("the proxy is gone: %v", err)
	}
	var all, resident int64
	if _, err := fmt.Sscan(string(text), &all, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}

// MostResident is the most memory that the proxy has had so far, in bytes.
func (p *Proxy) MostResident(t *testing.T) int64 {
	t.Helper()
	return p.child.MostResident(t)
}
