package audit

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A pipe without a reader is refused, and not waited for; one with a reader is written to.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(FileOptions{Path: path}); !errors.Is(err, errUnread) {
		t.Fatalf("got %v", err)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	f := openTest(t, FileOptions{Path: path})
	if _, err := f.Write([]byte("a\n")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2)
	if _, err := io.ReadFull(reader, got); string(got) != "a\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
