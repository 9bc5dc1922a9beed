package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

// A program's bill names what Go says is in it, once, with its sum, and is the same the next time.
func TestBill(t *testing.T) {
	path, err := os.Executable() // it is linked with cyclonedx-go
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := run(w, path, "v1.2.3"); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Errorf("two bills of a program differ:\n%s\n%s", &first, &second)
	}
	var b cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(&first, cyclonedx.BOMFileFormatJSON).Decode(&b); err != nil {
		t.Fatal(err)
	}
	if c := b.Metadata.Component; c.Version != "v1.2.3" || c.Name != filepath.Base(path) ||
		len((*c.Hashes)[0].Value) != 64 {
		t.Errorf("the program is %+v", c)
	}
	named := map[string]int{}
	for _, c := range *b.Components {
		named[c.Name]++
		if c.Name != "std" && (c.Hashes == nil || !strings.HasPrefix(c.PackageURL, "pkg:golang/"+c.Name+"@v")) {
			t.Errorf("%s is named as %+v", c.Name, c)
		}
	}
	if named["std"] != 1 || named["github.com/CycloneDX/cyclonedx-go"] != 1 {
		t.Errorf("it names %v", named)
	}
}

func TestReplacements(t *testing.T) {
	b, err := bill(&debug.BuildInfo{GoVersion: "go1.26.0", Deps: []*debug.Module{
		{Path: "example.com/a", Version: "v1.0.0",
			Replace: &debug.Module{Path: "example.com/b", Version: "v2.0.0+incompatible"}},
	}}, "program", "v1", "")
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, c := range *b.Components {
		urls = append(urls, c.PackageURL)
	}
	if want := []string{"pkg:golang/std@1.26.0", "pkg:golang/example.com/b@v2.0.0%2Bincompatible"}; !slices.Equal(
		urls, want) {
		t.Errorf("they are %q, want %q", urls, want)
	}
}

func TestBadInput(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{text, text + ".not"} {
		if err := run(&bytes.Buffer{}, path, "v1"); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	_, err := bill(&debug.BuildInfo{Deps: []*debug.Module{{Path: "example.com/a", Version: "v1.0.0", Sum: "h2:x"}}},
		"program", "v1", "")
	if err == nil || !strings.Contains(err.Error(), "example.com/a") {
		t.Errorf("a sum of an unknown kind: %v", err)
	}
}
