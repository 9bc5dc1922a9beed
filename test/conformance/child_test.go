package conformance

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// child is a process that ends with us, however we end: the kernel kills it when the thread that started it is gone, so
// that thread does nothing but wait for it.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended; read after done
}

func startChild(cmd *exec.Cmd, in io.Reader, out io.Writer) (*child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	cmd.WaitDelay = 5 * time.Second
	c := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", cmd.Path, err)
	}
	return c, nil
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// stop ends the child, by force if it does not end within grace.
func (c *child) stop(grace time.Duration) {
	if c.ended() {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended meanwhile
	select {
	case <-c.done:
	case <-time.After(grace):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}
