package stage

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

// Child is a program that ends with us at the latest, by SIGKILL if need be. It is simpler than
// process.Child, which may be started by any goroutine and would link package testing.
type Child struct {
	Done chan struct{} // closed when it has ended
	Err  error         // how it ended; read after Done
	cmd  *exec.Cmd
}

// StartChild starts a program in a process group of its own, so that Ctrl-C in our terminal reaches
// only us and children end in the order we choose. Only the main goroutine may call it, or one that
// is locked to its thread for as long as the child may live.
func StartChild(name string, cmd *exec.Cmd) (*Child, error) {
	return startChild(name, cmd, syscall.SIGKILL)
}

// StartGroup is StartChild for a program that starts others. It receives SIGTERM when we die, and
// should then end its process group.
func StartGroup(name string, cmd *exec.Cmd) (*Child, error) {
	return startChild(name, cmd, syscall.SIGTERM)
}

func startChild(name string, cmd *exec.Cmd, whenWeDie syscall.Signal) (*Child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: whenWeDie}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	c := &Child{cmd: cmd, Done: make(chan struct{})}
	go func() {
		c.Err = cmd.Wait()
		close(c.Done)
	}()
	return c, nil
}

// Stop sends the child SIGTERM, kills it if it has not ended within grace, and returns when it is
// gone.
func (c *Child) Stop(grace time.Duration) {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only when it is gone already
	select {
	case <-c.Done:
	case <-time.After(grace):
		_ = c.cmd.Process.Kill()
		<-c.Done
	}
}

// StopGroup is Stop for the child and all that it has started.
func (c *Child) StopGroup(grace time.Duration) {
	group := -c.cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	for deadline := time.Now().Add(grace); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if syscall.Kill(group, 0) != nil { // nothing is left of it
			break
		}
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-c.Done
}
