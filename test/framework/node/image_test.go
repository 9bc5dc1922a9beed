package node

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// An image holds its program by name in the root folder, as the image of the Dockerfile holds
// /spillway, and starts it.
func TestAnImageHoldsItsProgramByName(t *testing.T) {
	dir := t.TempDir()
	program, archive := filepath.Join(dir, "built"), filepath.Join(dir, "image.tar")
	if err := os.WriteFile(program, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	image := Image{Name: "localhost/spillway:dev", Program: program, As: "spillway", User: "1:1", Commands: []string{"sh"}}
	if err := image.Write(archive); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	var entrypoint, names []string
	for _, blob := range filesOf(t, text) {
		var config struct{ Config struct{ Entrypoint []string } }
		if json.Unmarshal(blob.content, &config) == nil {
			entrypoint = append(entrypoint, config.Config.Entrypoint...)
			continue
		}
		for _, f := range filesOf(t, blob.content) {
			names = append(names, f.name+f.link)
			if f.name == "spillway" && (string(f.content) != "a program" || f.mode != 0o755) {
				t.Errorf("%+v", f)
			}
		}
	}
	if want := []string{"/spillway"}; !slices.Equal(entrypoint, want) {
		t.Errorf("its entry point is %q", entrypoint)
	}
	if want := []string{"spillway", "bin/sh/spillway"}; !slices.Equal(names, want) {
		t.Errorf("it holds %q, want %q", names, want)
	}
}

func filesOf(t *testing.T, archive []byte) (all []file) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file{name: header.Name, mode: header.Mode, content: content, link: header.Linkname})
	}
}
