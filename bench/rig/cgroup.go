package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Cgroup is a control group of one process, whose memory it limits: what the process is killed for
// if it takes more. The kernel's memory of its sockets is in it under version 2, and counted apart
// under version 1.
type Cgroup struct {
	path string
	v2   bool
}

// NewCgroup makes a control group with a limit in bytes. Remove it. The error says why there can be
// none, as where the user has no permission to make one.
func NewCgroup(name string, limit int64) (*Cgroup, error) {
	const root = "/sys/fs/cgroup"
	g := &Cgroup{path: filepath.Join(root, "memory", name)}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		g.path, g.v2 = filepath.Join(root, name), true
	}
	if err := os.Mkdir(g.path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("a control group: %w", err)
	}
	file := "memory.limit_in_bytes"
	if g.v2 {
		file = "memory.max"
	}
	if err := g.write(file, limit); err != nil {
		_ = g.Remove()
		return nil, fmt.Errorf("a control group: %w", err)
	}
	if !g.v2 {
		_ = g.write("memory.kmem.tcp.limit_in_bytes", 1<<40) // so that it is counted; not every kernel can
	}
	return g, nil
}

func (g *Cgroup) write(file string, value int64) error {
	return os.WriteFile(filepath.Join(g.path, file), strconv.AppendInt(nil, value, 10), 0o644)
}

// enter makes a command that is yet to be started run in the group, from before its first
// instruction.
func (g *Cgroup) enter(cmd *exec.Cmd) {
	cmd.Args = append([]string{"/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(g.path, "cgroup.procs"),
		cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}

// KernelTCP is how many bytes the kernel holds for the TCP sockets of the group's process, if it
// reports it.
func (g *Cgroup) KernelTCP() (int64, bool) {
	text, err := os.ReadFile(filepath.Join(g.path, "memory.kmem.tcp.usage_in_bytes"))
	if g.v2 {
		text, err = g.stat("sock")
	}
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// stat is a line of memory.stat.
func (g *Cgroup) stat(name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(g.path, "memory.stat"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return []byte(value), nil
		}
	}
	return nil, fmt.Errorf("memory.stat has no %q", name)
}

// Remove removes the group, whose process has ended.
func (g *Cgroup) Remove() (err error) {
	for range 50 { // a process is in its group until it has been reaped
		if err = os.Remove(g.path); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}
