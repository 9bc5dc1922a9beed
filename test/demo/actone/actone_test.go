package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/test/demo/stage"
	"spillway/test/framework/process"
)

// patience is the budget of what must come true: many times what it takes on a machine that is
// busy.
const patience = 5 * time.Minute

// TestActOne plays act one: each of its steps fails unless what it prints is true. Then it plants a
// fault in front of each step.
func TestActOne(t *testing.T) {
	runtime.LockOSThread() // children live as long as the thread that starts them
	spillway := process.BuildProxy(t)
	newShow := func(w io.Writer) *show {
		return &show{flags: flags{spillway: spillway}, console: stage.NewConsole(w), budget: patience, settle: patience}
	}

	t.Run("every claim is true", func(t *testing.T) {
		runtime.LockOSThread()
		var out strings.Builder
		if err := newShow(&out).play(t.Context()); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		for _, want := range []string{
			"an API server made for tests, in this process", "40 clients watch them", "curl -sN 'http://127.0.0.1:",
			"The API server serves 1 watch of pods", "The 40 others have every", "No client lists again",
			"/statusz shows", "nothing is left behind",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("act one does not print %q", want)
			}
		}
		t.Log(out.String())
	})

	for _, c := range []struct {
		name, step string
		plant      func(*testing.T, *show)
		want       string // in the error
	}{
		{"a second watch at the API server", "many watches", func(t *testing.T, s *show) {
			w := rawclient.Watch(t.Context(), s.api.URL, watchPath)
			t.Cleanup(w.Close)
			if _, err := w.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.settle = time.Second
		}, "serves 2 watches of pods instead of 1"},
		{"an event that is lost", "an event", func(_ *testing.T, s *show) {
			s.api.LoseEvents(fakeapiserver.Pods, 1)
			s.budget = 5 * time.Second
		}, "a client waits for ADDED default/hello"},
		{"an event too many", "an event", func(_ *testing.T, s *show) {
			s.api.Create(fakeapiserver.Pods, namespace, "foreign")
		}, "instead of ADDED default/hello"},
		{"a watch that has ended", "a slow client", func(_ *testing.T, s *show) {
			s.watchers[7].Close()
		}, "watch cancelled"},
		{"watches that end with the API server", "a restart", func(_ *testing.T, s *show) {
			s.proxy.Stop()
		}, "a client waits for ADDED default/created-while-down: watch "},
		{"no status page", "the status page", func(_ *testing.T, s *show) {
			s.proxy.Stop()
		}, "/statusz: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread()
			s := newShow(io.Discard)
			s.dir = t.TempDir()
			defer func() {
				if err := s.close(); err != nil {
					t.Error(err)
				}
			}()
			for _, step := range s.steps() {
				switch {
				case step.name == c.step:
				case step.name == "a slow client": // the steps after it do not need it
					continue
				default:
					if err := step.do(t.Context()); err != nil {
						t.Fatalf("%s: %v", step.name, err)
					}
					continue
				}
				c.plant(t, s)
				if err := step.do(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				return
			}
			t.Fatalf("there is no step %q", c.step)
		})
	}
}

func TestABuildThatEndsBesideActOne(t *testing.T) {
	runtime.LockOSThread()
	for _, c := range []struct {
		name, script string
		want         string // in the error; "": none
	}{
		{"one that succeeds", "true", ""},
		{"one that fails: the error has the end of its log", "echo no compiler; exit 3", "no compiler"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := showWithBuild(t, c.script)
			<-s.build.child.Done
			err := s.build.failure()
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), s.log)) {
				t.Errorf("got %v, want %q and %s", err, c.want, s.log)
			}
		})
	}
}

func TestABuildThatIsInterruptedLeavesNoProcess(t *testing.T) {
	runtime.LockOSThread()
	s := showWithBuild(t, "sleep 1000 & echo $!; wait")
	pid := ""
	process.Awaiting(t, "the build to start a program", func(context.Context) error {
		if pid = lastLine(stage.TailOf(s.log)); pid == "" {
			return errors.New("it has printed nothing")
		}
		return nil
	})
	s.build.stop()
	process.Awaiting(t, "that program to end", func(context.Context) error {
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err == nil && !strings.Contains(string(stat), ") Z ") {
			return errors.New(string(stat))
		}
		return nil
	})
}

// showWithBuild returns a show that has only started a build, which ends with the test.
func showWithBuild(t *testing.T, script string) *show {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "build.sh")
	if err := os.WriteFile(path, []byte("#!/bin/bash\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &show{
		flags:   flags{buildCommand: path, log: filepath.Join(dir, "build.log"), next: []string{"acttwo"}},
		console: stage.NewConsole(io.Discard), dir: filepath.Join(dir, "show"),
	}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.startBuild(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
