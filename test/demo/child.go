package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// The kernel kills our children when the *thread* that forked them ends (Pdeathsig, which only
// Linux has). The main goroutine, which starts all of them, keeps the process's first thread, so
// they end with the process and not before.
func init() { runtime.LockOSThread() }

// child is a program that ends with us at the latest, by SIGKILL if need be. It is simpler than
// process.Child, which may be started by any goroutine and would link package testing.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended; read after done
}

// startChild starts a program in a process group of its own, so that Ctrl-C in our terminal reaches
// only us and children end in the order we choose. Only the main goroutine may call it.
func startChild(name string, cmd *exec.Cmd) (*child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	c := &child{cmd: cmd, done: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// stop sends the child SIGTERM, kills it if it has not ended within grace, and returns when it is
// gone.
func (c *child) stop(grace time.Duration) {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only when it is gone already
	select {
	case <-c.done:
	case <-time.After(grace):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}
