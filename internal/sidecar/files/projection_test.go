package files

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// account writes a service account in the manner of the kubelet.
func account(t *testing.T, dir, token string) {
	t.Helper()
	err := Directory{dir}.Write(map[string][]byte{"token": []byte(token), "namespace": []byte("default"),
		"ca.crt": []byte("the cluster's\n")})
	if err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, dir, name, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || string(got) != want {
		t.Errorf("%s is %q, %v; want %q", name, got, err, want)
	}
}

// The copy equals the original after each of two rotations, and its ca.crt has the authority of the
// proxy and those of the original.
func TestProjectionFollows(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	account(t, from, "first")
	core, logs := observer.New(zap.InfoLevel)
	p := NewProjection(from, to, []byte("ours\n"), zap.New(core))
	if err := p.Write(); err != nil {
		t.Fatal(err)
	}
	expect(t, to, "token", "first")
	expect(t, to, "namespace", "default")
	expect(t, to, "ca.crt", "ours\nthe cluster's\n")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.Run(ctx)
		for _, token := range []string{"second", "third"} {
			account(t, from, token)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			expect(t, to, "token", token)
		}
		before, err := os.Readlink(filepath.Join(to, dataLink))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if now, err := os.Readlink(filepath.Join(to, dataLink)); err != nil || now != before {
			t.Errorf("written again without a change: %s, %v", now, err)
		}
		// What cannot be read leaves what is there, and is said once.
		if err := os.Remove(filepath.Join(from, dataLink)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		expect(t, to, "token", "third")
		account(t, from, "")
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, to, "token", "third")
		account(t, from, "fourth")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		expect(t, to, "token", "fourth")
	})
	if n := logs.FilterMessageSnippet("keep the token that they have").Len(); n != 2 {
		t.Errorf("said %d times that it cannot be copied; want once for each reason", n)
	}
	if n := logs.FilterMessageSnippet("have its new token").Len(); n != 3 {
		t.Errorf("said %d times that there is a new token", n)
	}
}

// A reader finds files that belong together while others are written; a write that did not end
// leaves nothing behind.
func TestDirectoryChangesAtOnce(t *testing.T) {
	dir := t.TempDir()
	d := Directory{dir}
	if err := os.Mkdir(filepath.Join(dir, "..20unfinished"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"..data_tmp", "..a_tmp"} {
		if err := os.Symlink("nowhere", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write := func(n int) error {
		text := []byte(strings.Repeat(fmt.Sprintln(n), 1000))
		return d.Write(map[string][]byte{"a": text, "b": text})
	}
	if err := write(0); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				at, err := os.Readlink(filepath.Join(dir, dataLink)) // a reader that wants both opens them where they are now
				if err != nil {
					t.Error(err)
					return
				}
				a, errA := os.ReadFile(filepath.Join(dir, at, "a"))
				b, errB := os.ReadFile(filepath.Join(dir, at, "b"))
				if errA == nil && errB == nil && !bytes.Equal(a, b) || errA == nil && len(a) < 2000 {
					t.Errorf("half of one and half of another: %d and %d bytes", len(a), len(b))
				}
			}
		})
	}
	for n := range 200 {
		if err := write(n); err != nil {
			t.Error(err)
			break
		}
	}
	close(done)
	readers.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 {
		t.Errorf("%v, %v; want a folder, a link to it, and two files", entries, err)
	}
}

// Every user of the pod can read, whatever umask the proxy has.
func TestDirectoryIsReadable(t *testing.T) {
	dir := t.TempDir()
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	account(t, dir, "token")
	for name, want := range map[string]os.FileMode{"token": 0o644, "ca.crt": 0o644, "namespace": 0o644,
		dataLink: os.ModeDir | 0o755} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

// What is wrong is said with the file that it is wrong with.
func TestCause(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	p := NewProjection(from, to, nil, zap.NewNop())
	if err := p.Write(); err == nil || Cause(err) != filepath.Join(from, "token")+": no such file or directory" {
		t.Error(err)
	}
	account(t, from, " \n")
	if err := p.Write(); err == nil || Cause(err) != filepath.Join(from, "token")+" is empty" {
		t.Error(err)
	}
	account(t, from, "x")
	p.to = Directory{filepath.Join(to, "none")}
	if err := p.Write(); err == nil || !strings.HasSuffix(Cause(err), ": no such file or directory") {
		t.Error(err)
	}
}
