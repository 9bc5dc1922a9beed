package rig

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// nursery forks children on a thread that lives as long as this process: the kernel kills a child
// when the thread that forked it ends, and that is what keeps proxies from outliving a program that
// was killed.
var nursery = sync.OnceValue(func() chan<- startRequest {
	births := make(chan startRequest)
	go func() {
		runtime.LockOSThread()
		for b := range births {
			b.started <- b.cmd.Start()
		}
	}()
	return births
})

type startRequest struct {
	cmd     *exec.Cmd
	started chan error
}

// Start starts cmd as a child that dies with us, in a process group of its own, so that Ctrl-C
// reaches only us.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	b := startRequest{cmd: cmd, started: make(chan error, 1)}
	nursery() <- b
	return <-b.started
}
