package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func openTest(t *testing.T, o FileOptions) *file {
	t.Helper()
	out, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	f := out.(*file)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// A file that is deleted or moved away is made again, rotated or not; what was there before stays.
func TestFile(t *testing.T) {
	for name, size := range map[string]int{"rotated": 1, "growing": 0} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "logs", "audit.log")
			for _, text := range []string{"a\n", "b\n"} {
				f := openTest(t, FileOptions{Path: path, MaxSize: size})
				if _, err := f.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(path); string(got) != "a\nb\n" || err != nil {
				t.Fatalf("%q, %v", got, err)
			}
			f := openTest(t, FileOptions{Path: path, MaxSize: size})
			if _, err := f.Write([]byte("c\n")); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
			f.checked = time.Time{} // it is looked now and then
			if name == "growing" {
				if _, err := f.Write([]byte("d\n")); err == nil {
					t.Error("nothing is wrong with a folder that is gone")
				}
				if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := f.Write([]byte("e\n")); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); string(got) != "e\n" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// It is rotated by its size.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	f := openTest(t, FileOptions{Path: filepath.Join(dir, "audit.log"), MaxSize: 1})
	for range 2 {
		if _, err := f.Write([]byte(strings.Repeat("a", 600<<10) + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	all, err := filepath.Glob(filepath.Join(dir, "audit-*.log"))
	if len(all) != 1 || err != nil {
		t.Errorf("%q, %v", all, err)
	}
}

// What cannot be written is found out at once.
func TestOpenFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{filepath.Join(path, "audit.log"), t.TempDir()} {
		if _, err := Open(FileOptions{Path: bad}); err == nil {
			t.Errorf("%s was opened", bad)
		}
	}
}
