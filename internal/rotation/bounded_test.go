package rotation

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// fifo is a file that hangs a reader until it is written to, as one of a file system that
// does not answer.
func fifo(t *testing.T, name string) {
	t.Helper()
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // lets the reader go
		if w, err := os.OpenFile(name, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			w.Close()
		}
	})
}

// A file that hangs is given up after readTimeout, costs one goroutine however often it is wanted,
// holds up no other file, and can be read once it answers.
func TestHungFileIsGivenUp(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	fifo(t, name)
	var hung *HungError
	began := time.Now()
	if _, err := ReadFile(name); !errors.As(err, &hung) || hung.What != name {
		t.Fatalf("got %v", err)
	}
	if took := time.Since(began); took < readTimeout {
		t.Errorf("given up after %v", took)
	}
	reads.mu.Lock()
	under := reads.underWay[name]
	reads.mu.Unlock()
	for range 100 {
		if _, err := ReadFile(name); !errors.As(err, &hung) {
			t.Fatalf("got %v", err)
		}
	}
	reads.mu.Lock()
	again := reads.underWay[name]
	reads.mu.Unlock()
	if under == nil || again != under {
		t.Error("another read began")
	}
	if took := time.Since(began); took >= 2*readTimeout {
		t.Errorf("later calls waited: %v", took)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(other); err != nil || string(text) != "x" {
		t.Errorf("another file: %q %v", text, err)
	}
	w, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	<-under.done
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(name); err != nil || string(text) != "new" {
		t.Errorf("afterwards: %q %v", text, err)
	}
}

// A Value keeps what it has while its file hangs, says why in its states, which are to be had
// meanwhile, and follows the file again.
func TestValueOutlivesAHungFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := New(Options[string]{Use: "token", Read: Files(name), Parse: func(parts []Part) (string, time.Time, error) {
		return string(parts[0].Text), time.Time{}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	fifo(t, name)
	looked := make(chan bool)
	go func() { looked <- v.Look() }()
	for range 100 { // while it hangs
		if states := v.States(); len(states) != 1 || v.Get() != "old" {
			t.Fatalf("%v %q", states, v.Get())
		}
	}
	if <-looked || v.Get() != "old" {
		t.Errorf("uses %q", v.Get())
	}
	if err := v.States()[0].Err; !errors.As(err, new(*HungError)) {
		t.Errorf("its state tells %v", err)
	}
	w, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.WriteString("new")
	w.Close()
	for v.Get() != "new" { // the result of the read that hung is not used; the next one finds a file
		_ = os.Remove(name)
		if err := os.WriteFile(name, []byte("new"), 0o600); err != nil {
			t.Fatal(err)
		}
		v.Look()
	}
	if err := v.States()[0].Err; err != nil {
		t.Errorf("its state tells %v", err)
	}
}
