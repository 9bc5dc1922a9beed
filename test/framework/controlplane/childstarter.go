package controlplane

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

var errStopped = errors.New("the control plane has been stopped")

// childStarter starts child processes that cannot outlive us: the kernel kills them (Pdeathsig)
// when their parent dies, even by SIGKILL. What the kernel calls the parent is the *thread* that
// forked, and Go ends threads when it likes, so all children are forked by one goroutine that keeps
// its thread to itself until the last of them is gone.
type childStarter struct {
	requests chan startRequest
	done     chan struct{} // closed when the forking goroutine has ended

	mu struct {
		sync.Mutex
		closed   bool
		children map[*Process]struct{}
	}
	starting sync.WaitGroup // start calls under way
}

// startRequest is a command to be started; the answer is Start's error.
type startRequest struct {
	cmd    *exec.Cmd
	answer chan error
}

func newNursery() *childStarter {
	n := &childStarter{requests: make(chan startRequest), done: make(chan struct{})}
	n.mu.children = map[*Process]struct{}{}
	go n.run()
	return n
}

func (n *childStarter) run() {
	defer close(n.done)
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine, after its children
	for b := range n.requests {
		b.answer <- b.cmd.Start()
	}
}

// start runs cmd as a child in a process group of its own, so that a Ctrl-C in our terminal reaches
// only us and the children end in the order we choose. It returns errStopped after close.
func (n *childStarter) start(name string, cmd *exec.Cmd) (*Process, error) {
	n.mu.Lock()
	if n.mu.closed {
		n.mu.Unlock()
		return nil, errStopped
	}
	n.starting.Add(1)
	n.mu.Unlock()
	defer n.starting.Done()

	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	b := startRequest{cmd: cmd, answer: make(chan error, 1)}
	n.requests <- b
	if err := <-b.answer; err != nil {
		return nil, err
	}
	p := &Process{name: name, cmd: cmd, done: make(chan struct{})}
	n.mu.Lock()
	n.mu.children[p] = struct{}{}
	n.mu.Unlock()
	go func() {
		p.err = cmd.Wait()
		n.mu.Lock()
		delete(n.mu.children, p)
		n.mu.Unlock()
		close(p.done)
	}()
	return p, nil
}

// close kills the children, waits until they are reaped and gives the thread back.
func (n *childStarter) close() {
	n.mu.Lock()
	first := !n.mu.closed
	n.mu.closed = true
	n.mu.Unlock()
	if !first {
		<-n.done
		return
	}
	n.starting.Wait()
	n.mu.Lock()
	children := make([]*Process, 0, len(n.mu.children))
	for p := range n.mu.children {
		children = append(children, p)
	}
	n.mu.Unlock()
	for _, p := range children {
		p.Kill()
	}
	close(n.requests)
	<-n.done
}
