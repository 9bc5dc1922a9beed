package controlplane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Process is one run of one program. It ends with its control plane at the latest.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended; read after done
}

// Name is the program's name, such as kube-apiserver.
func (p *Process) Name() string { return p.name }

// Pid is the process id, which means this process only until Done.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and been reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns when the process has ended; nil means exit code 0.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// CPU is the processor time used so far, user and system, in steps of 10 ms.
func (p *Process) CPU() (time.Duration, error) {
	stat, err := p.stat()
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}

// RSS is the resident memory now, in bytes.
func (p *Process) RSS() (int64, error) {
	stat, err := p.stat()
	return int64(stat.ResidentMemory()), err
}

func (p *Process) stat() (procfs.ProcStat, error) {
	proc, err := procfs.NewProc(p.Pid())
	if err == nil {
		var stat procfs.ProcStat
		if stat, err = proc.Stat(); err == nil {
			return stat, nil
		}
	}
	return procfs.ProcStat{}, fmt.Errorf("cannot read what %s uses: %w", p.name, err)
}

// Freeze stops the process where it is (SIGSTOP) and returns when all its threads stand still. Its
// connections stay open and silent.
func (p *Process) Freeze() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		// WNOWAIT leaves the report where it is, so a second Freeze returns as well.
		err := unix.Waitid(unix.P_PID, p.Pid(), nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			if err != nil {
				return fmt.Errorf("cannot freeze %s: %w", p.name, err)
			}
			return nil
		}
	}
}

// Thaw lets a frozen process go on.
func (p *Process) Thaw() error { return p.Signal(syscall.SIGCONT) }

// Signal sends sig; os.ErrProcessDone says that the process has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("cannot send %s to %s: %w", sig, p.name, err)
	}
	return nil
}

// Stop sends the process SIGTERM, kills it when it has not ended within grace, and returns when it
// is gone. A frozen process is thawed first.
func (p *Process) Stop(grace time.Duration) {
	if errors.Is(p.Signal(syscall.SIGTERM), os.ErrProcessDone) {
		<-p.done
		return
	}
	_ = p.Thaw()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.Kill()
	}
}

// Kill ends the process at once (SIGKILL) and returns when it is gone.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // fails only when it is gone already
	<-p.done
}
