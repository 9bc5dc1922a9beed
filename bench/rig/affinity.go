package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Isolate gives one server the first core for itself, and all else that this run started the
// others, until release.
func (p *Pair) Isolate(server Server) (release func(), err error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("there is one core only")
	}
	var first, others, all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, err
	}
	for cpu := range len(all) * 64 {
		switch {
		case !all.IsSet(cpu):
		case first.Count() == 0:
			first.Set(cpu)
		default:
			others.Set(cpu)
		}
	}
	pids := []int{os.Getpid(), p.ControlPlane.Etcd().Pid(), p.ControlPlane.APIServer().Pid(), p.APIServer.Pid,
		p.Spillway.Pid}
	release = func() {
		for _, pid := range pids {
			_ = pin(pid, &all) // what has ended needs none
		}
	}
	for _, pid := range pids {
		set := &others
		if pid == server.Pid {
			set = &first
		}
		if err := pin(pid, set); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

// pin binds all threads of a process, and so those that they will start.
func pin(pid int, to *unix.CPUSet) error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return err
	}
	for _, task := range tasks {
		id, err := strconv.Atoi(filepath.Base(task))
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, to); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("pinning process %d: %w", pid, err)
		}
	}
	return nil
}
