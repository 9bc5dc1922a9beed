package node

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// supervisor is what PID 1 does: it starts programs, starts them again when they end, and reaps
// what other processes leave behind. os/exec's Wait has no place beside it: the reaper takes every
// exit status.
type supervisor struct {
	dir string // of logs

	mu      sync.Mutex
	running map[int]*supervised
}

type supervised struct {
	name, path string
	args       []string
	ended      chan syscall.WaitStatus // nil: it is started again
}

const restartPause = 500 * time.Millisecond

func newSupervisor(dir string) *supervisor {
	s := &supervisor{dir: dir, running: map[int]*supervised{}}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			for {
				var status syscall.WaitStatus
				pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
				if pid <= 0 || err != nil {
					break
				}
				s.ended(pid, status)
			}
		}
	}()
	return s
}

func (s *supervisor) ended(pid int, status syscall.WaitStatus) {
	s.mu.Lock()
	p := s.running[pid]
	delete(s.running, pid)
	s.mu.Unlock()
	switch {
	case p == nil: // an orphan
	case p.ended != nil:
		p.ended <- status
	default:
		fmt.Fprintf(os.Stderr, "node: %s ended (%s), and is started again\n", p.name, describe(status))
		time.AfterFunc(restartPause, func() {
			if err := s.start(p); err != nil {
				fmt.Fprintln(os.Stderr, "node:", err)
			}
		})
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return status.Signal().String()
	}
	return fmt.Sprint("exit status ", status.ExitStatus())
}

// keep starts a program that is to run for as long as the node does.
func (s *supervisor) keep(name, path string, args ...string) error {
	return s.start(&supervised{name: name, path: path, args: args})
}

// run runs a program to its end.
func (s *supervisor) run(name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return err
	}
	p := &supervised{name: filepath.Base(name), path: path, args: args, ended: make(chan syscall.WaitStatus, 1)}
	if err := s.start(p); err != nil {
		return err
	}
	if status := <-p.ended; status != 0 {
		text, _ := os.ReadFile(s.log(p.name)) // the error says enough without
		return fmt.Errorf("%s %v: %s\n%s", name, args, describe(status), text)
	}
	return nil
}

func (s *supervisor) log(name string) string { return filepath.Join(s.dir, name+".log") }

func (s *supervisor) start(p *supervised) error {
	log, err := os.OpenFile(s.log(p.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.mu.Lock() // so that the reaper knows the process before it ends
	defer s.mu.Unlock()
	process, err := os.StartProcess(p.path, append([]string{p.path}, p.args...),
		&os.ProcAttr{Dir: s.dir, Env: os.Environ(), Files: []*os.File{nil, log, log}})
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	s.running[process.Pid] = p
	return process.Release()
}
