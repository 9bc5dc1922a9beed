package process

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Child is a process that ends with us, however we end: the kernel kills it when the thread that
// started it is gone, so that thread does nothing but wait for it.
type Child struct {
	cmd  *exec.Cmd
	Done chan struct{}
	Err  error // how it ended; read after Done
}

// Start starts cmd in a process group of its own, and in the namespaces that its SysProcAttr names.
func Start(cmd *exec.Cmd, in io.Reader, out io.Writer) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	cmd.WaitDelay = 5 * time.Second
	c := &Child{cmd: cmd, Done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := cmd.Start()
		started <- err
		if err == nil {
			c.Err = cmd.Wait()
			close(c.Done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", cmd.Path, err)
	}
	return c, nil
}

// Pid is the process id, which means this process only until Done.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Ended reports that it has.
func (c *Child) Ended() bool {
	select {
	case <-c.Done:
		return true
	default:
		return false
	}
}

// Stop ends the child, by force if it does not end within grace.
func (c *Child) Stop(grace time.Duration) {
	if c.Ended() {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended meanwhile
	select {
	case <-c.Done:
	case <-time.After(grace):
		_ = c.cmd.Process.Kill()
		<-c.Done
	}
}

// Kill ends the child at once (SIGKILL) and returns when it is gone.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // fails only if it has ended
	<-c.Done
}

// Signal sends a signal, such as SIGSTOP and SIGCONT; a process that has ended gets none.
func (c *Child) Signal(sig syscall.Signal) error {
	if err := c.cmd.Process.Signal(sig); err != nil && !c.Ended() {
		return fmt.Errorf("cannot send %s to %s: %w", sig, c.cmd.Path, err)
	}
	return nil
}

// MostResident is the most memory that the process has had so far, in bytes: VmHWM of proc(5).
func (c *Child) MostResident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		t.Fatalf("the process is gone: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		var n int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &n); err == nil {
			return n << 10
		}
	}
	t.Fatal("its status does not tell VmHWM")
	return 0
}
