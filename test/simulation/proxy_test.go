package simulation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// patience bounds whatever is certain to come.
const patience = time.Minute

// startProxy builds the proxy, runs it in front of an apiserver, and returns the host:port that it serves on.
func startProxy(t *testing.T, upstream, resources string) string {
	t.Helper()
	dir := t.TempDir()
	binary, config := filepath.Join(dir, "spillway"), filepath.Join(dir, "kubeconfig")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/proxy")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the proxy: %v\n%s", err, out)
	}
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],`+
		`"contexts":[{"name":"c","context":{"cluster":"c","user":""}}]}`, upstream)
	if err := os.WriteFile(config, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ended := spawn(t, log, binary, "--kubeconfig="+config, "--resources="+resources, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
		"--plain-identity=self", "--drain-period=0s", "--log-level=debug")
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			t.Fatal(err)
		}
		if address := servingOn(text); address != "" {
			return address
		}
		select {
		case <-ended:
			t.Fatalf("the proxy ended at once:\n%s", text)
		default:
		}
		if time.Since(begin) > patience {
			t.Fatalf("the proxy does not serve:\n%s", text)
		}
	}
}

// spawn runs a program until the test ends; the kernel ends it if we do not.
func spawn(t *testing.T, log *os.File, name string, args ...string) (ended <-chan struct{}) {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the signal comes when the starting thread ends: with this goroutine
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // however it ended
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
		select {
		case <-done:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-done
		}
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("the proxy's log:\n%s", text)
		}
	})
	return done
}

// servingOn finds the address in the proxy's log.
func servingOn(log []byte) string {
	for line := range bytes.Lines(log) {
		var entry struct{ Msg, Address string }
		if json.Unmarshal(line, &entry) == nil && entry.Msg == "serving plain HTTP" {
			return entry.Address
		}
	}
	return ""
}
