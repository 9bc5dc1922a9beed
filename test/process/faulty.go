package process

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Fault is a piece of a source file, which must stand there once, and what a faulty proxy has in its place.
type Fault struct{ File, Old, New string }

// BuildFaultyProxy compiles a proxy with a fault. The file itself stays as it is: what is planted leaves no trace in the product.
func BuildFaultyProxy(t *testing.T, fault Fault) string {
	t.Helper()
	source := filepath.Join(Repository(t), fault.File)
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), fault.Old); n != 1 {
		t.Fatalf("%q stands %d times in %s", fault.Old, n, fault.File)
	}
	dir := t.TempDir()
	replaced, overlay, binary := filepath.Join(dir, filepath.Base(fault.File)), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "spillway")
	if err := os.WriteFile(replaced, []byte(strings.Replace(string(text), fault.Old, fault.New, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	layers, err := json.Marshal(map[string]map[string]string{"Replace": {source: replaced}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, layers, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay="+overlay, "-o", binary, "./cmd/proxy")
	build.Dir = Repository(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the proxy: %v\n%s", err, out)
	}
	return binary
}
