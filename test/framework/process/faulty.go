package process

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Fault is a piece of a source file, which must stand there once, and what a faulty proxy has in
// its place. A file of the repository is named from its root on, one of Go's library by its whole
// path. Where nothing stands in Old, New is a file that is not there otherwise.
type Fault struct{ File, Old, New string }

// LateSnapshot is a proxy that sends the head of a watch and fixes the watch's place in history
// only some time after it.
var LateSnapshot = Fault{
	File: "internal/watch/stream.go",
	Old: `	first := s.beginning
	s.beginning = beginning{}
	s.out.Pace(first.pinnedBytes())
	s.noteInitialWait(s.out.wait())
	err := s.sendBeginning(first)
	s.noteInitialWait(nil)
	s.out.Pace(0) // not after a panic, which may have left the connection locked
	return err
}

func (s *Stream) sendBeginning(first beginning) error {
	err := s.out.begin()
`,
	New: `	err := s.out.begin()
	if err == nil && s.beginning.err == nil && s.backfill == nil {
		time.Sleep(500 * time.Millisecond)
		s.cursor.Close()
		s.fixBeginning(nil)
	}
	first := s.beginning
	s.beginning = beginning{}
	s.out.Pace(first.pinnedBytes())
	s.noteInitialWait(s.out.wait())
	err = s.sendBeginning(first, err)
	s.noteInitialWait(nil)
	s.out.Pace(0)
	return err
}

func (s *Stream) sendBeginning(first beginning, err error) error {
`,
}

// BuildFaultyProxy compiles a proxy with faults. The files themselves stay as they are: what is
// planted leaves no trace in the product.
func BuildFaultyProxy(t *testing.T, faults ...Fault) string {
	t.Helper()
	dir, sources := t.TempDir(), Planted(t, faults...)
	layers := map[string]string{}
	for path, text := range sources {
		layers[path] = filepath.Join(dir, strings.ReplaceAll(path, string(filepath.Separator), "_"))
		if err := os.WriteFile(layers[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "spillway")
	text, err := json.Marshal(map[string]map[string]string{"Replace": layers})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay="+overlay, "-o", binary, "./cmd/proxy")
	build.Dir = Repository(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the proxy: %v\n%s", err, out)
	}
	return binary
}

// Planted returns the source files with the faults in them, by path. The test ends if a fault does
// not fit the sources as they are.
func Planted(t *testing.T, faults ...Fault) map[string]string {
	t.Helper()
	sources := map[string]string{}
	for _, fault := range faults {
		path := fault.File
		if !filepath.IsAbs(path) {
			path = filepath.Join(Repository(t), path)
		}
		sources[path] = fault.planted(t, path, sources)
	}
	return sources
}

// planted is the text of the file at path with the fault in it, and with those that are there
// already.
func (f Fault) planted(t *testing.T, path string, sources map[string]string) string {
	t.Helper()
	if f.Old == "" {
		return f.New
	}
	text, ok := sources[path]
	if !ok {
		read, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = string(read)
	}
	if n := strings.Count(text, f.Old); n != 1 {
		t.Fatalf("%q stands %d times in %s", f.Old, n, f.File)
	}
	return strings.Replace(text, f.Old, f.New, 1)
}
