package controlplane

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"go.uber.org/goleak"
)

// helperVariable turns the test binary into a program that starts children and waits to be killed.
const helperVariable = "SPILLWAY_TEST_HELPER"

func TestMain(m *testing.M) {
	if helper := os.Getenv(helperVariable); helper != "" {
		if err := runHelper(helper); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {}
	}
	goleak.VerifyTestMain(m)
}

// runHelper starts children and prints their ids, one line of them.
func runHelper(helper string) error {
	var pids []any
	switch helper {
	case "sleepers":
		n := newNursery()
		for range 3 {
			p, err := n.start("sleep", exec.Command("sleep", "3600"))
			if err != nil {
				return err
			}
			pids = append(pids, p.Pid())
		}
	case "controlplane":
		// A folder of the test's, because no process is left to remove a temporary one.
		cp, err := Start(context.Background(), Options{Dir: os.Getenv("TMPDIR"), Log: os.Stderr})
		if err != nil {
			return err
		}
		pids = append(pids, cp.Etcd().Pid(), cp.APIServer().Pid())
	default:
		return fmt.Errorf("no helper %q", helper)
	}
	fmt.Println(pids...)
	return nil
}

// TestChildrenDieWithTheirParent kills the parent in a way that it cannot notice.
func TestChildrenDieWithTheirParent(t *testing.T) {
	for _, helper := range []string{"sleepers", "controlplane"} {
		t.Run(helper, func(t *testing.T) {
			parent := exec.Command(os.Args[0])
			parent.Env = append(os.Environ(), helperVariable+"="+helper, "TMPDIR="+t.TempDir())
			parent.Stderr = os.Stderr
			stdout, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			line, readErr := bufio.NewReader(stdout).ReadString('\n')
			pids := parsePids(t, line)
			if readErr == nil && len(pids) < 2 {
				t.Errorf("the helper started %d children", len(pids))
			}
			for _, pid := range pids {
				if !alive(pid) {
					t.Errorf("process %d is gone before its parent", pid)
				}
			}
			if err := parent.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = parent.Wait() // "signal: killed"
			if readErr != nil {
				t.Fatalf("the helper printed nothing: %v", readErr)
			}
			for _, pid := range pids {
				eventually(t, "the death of a child", func(context.Context) error {
					if alive(pid) {
						return fmt.Errorf("process %d is alive", pid)
					}
					return nil
				})
			}
		})
	}
}

// TestChildrenSurviveThreads ends many threads of ours: none of them may be the one that the
// children hang on.
func TestChildrenSurviveThreads(t *testing.T) {
	n := newNursery()
	defer n.close()
	p, err := n.start("sleep", exec.Command("sleep", "3600"))
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			runtime.LockOSThread() // and never unlocked: the thread ends too
		}()
		<-ended
	}
	if !alive(p.Pid()) || !running(p) {
		t.Error("the child died with one of our threads")
	}
}

func TestCloseKillsFrozenChildren(t *testing.T) {
	n := newNursery()
	p, err := n.start("sleep", exec.Command("sleep", "3600"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	n.close()
	n.close()
	if running(p) {
		t.Error("the child runs on")
	}
	if _, err := n.start("sleep", exec.Command("sleep", "3600")); err != errStopped {
		t.Errorf("start after close: got %v, want %v", err, errStopped)
	}
}

func TestStopThawsAndEnds(t *testing.T) {
	n := newNursery()
	defer n.close()
	p, err := n.start("sleep", exec.Command("sleep", "3600"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	p.Stop(patience)
	if err := p.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("ended with %v, want SIGTERM", err)
	}
	p.Stop(patience)
}

func parsePids(t *testing.T, line string) []int {
	t.Helper()
	var pids []int
	for _, field := range strings.Fields(line) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatalf("the helper printed %q: %v", line, err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// alive reports whether a process is there and not a zombie, which is all that is left of one when
// init does not reap.
func alive(pid int) bool {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := proc.Stat()
	return err == nil && stat.State != "Z" && stat.State != "X"
}
