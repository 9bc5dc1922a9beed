package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	cgroupRoot   = "/sys/fs/cgroup"
	cgroupPrefix = "spillway-node-" // followed by the process id of the program that started the node
)

// namespaces are those that a node has of its own, but for the cgroup namespace: its root is the
// cgroup in which the process is at that moment, so the process enters its cgroup before.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// hierarchies are the cgroup v1 hierarchies of this machine, by the folder below cgroupRoot; with
// cgroup v2 there is one, "".
func hierarchies() ([]string, error) {
	var root unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &root); err != nil {
		return nil, fmt.Errorf("cannot look at %s: %w", cgroupRoot, err)
	}
	if root.Type == unix.CGROUP2_SUPER_MAGIC {
		return []string{""}, nil
	}
	tasks, err := filepath.Glob(cgroupRoot + "/*/tasks") // which v2 has not
	if err != nil || len(tasks) == 0 {
		return nil, fmt.Errorf("no cgroups are mounted below %s", cgroupRoot)
	}
	var names []string
	for _, path := range tasks {
		dir := filepath.Dir(path)
		if info, err := os.Lstat(dir); err == nil && info.IsDir() { // a link is another name of the same
			names = append(names, filepath.Base(dir))
		}
	}
	return names, nil
}

// enterCgroup puts this process into a cgroup of its own in each hierarchy, makes that the root of
// a new cgroup namespace, and executes this program again: a Go process has more threads than the
// one that may change its namespace.
func enterCgroup(name string, args ...string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, hierarchy := range all {
		dir := filepath.Join(cgroupRoot, hierarchy, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("cannot make a cgroup: %w", err)
		}
		for _, inherited := range []string{"cpuset.cpus", "cpuset.mems"} { // without them no process may enter
			if text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), inherited)); err == nil && hierarchy != "" {
				err = write(filepath.Join(dir, inherited), string(text))
				if err == nil {
					err = write(filepath.Join(dir, "cgroup.clone_children"), "1")
				}
				if err != nil {
					return err
				}
			}
		}
		if err := write(filepath.Join(dir, "cgroup.procs"), "0"); err != nil {
			return err
		}
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cannot make a cgroup namespace: %w", err)
	}
	return fmt.Errorf("cannot go on as %s: %w", args[0], syscall.Exec("/proc/self/exe", args, os.Environ()))
}

// removeCgroups removes the cgroups of a node that has ended, and those of nodes whose starting
// program has, by whatever means.
func removeCgroups(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	var failed error
	for _, hierarchy := range all {
		dirs, err := filepath.Glob(filepath.Join(cgroupRoot, hierarchy, cgroupPrefix+"*"))
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), cgroupPrefix), "-")
			pid, err := strconv.Atoi(owner)
			abandoned := err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
			if filepath.Base(dir) == name || abandoned {
				failed = errors.Join(failed, removeTree(dir))
			}
		}
	}
	return failed
}

// removeTree removes a cgroup and all below it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot read a cgroup: %w", err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove cgroup %s: %w", dir, err)
	}
	return nil
}

// mounts gives this mount namespace what the node's programs find at fixed paths: the cgroups of
// the node, the network's sysfs, and folders of the node's own.
func mounts(dir string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	m := mounter{}
	m.mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	m.mount("proc", "/proc", "proc", 0, "")
	m.try(umountAll(cgroupRoot)) // what would stay visible in mountinfo with roots outside the namespace
	m.mount("sysfs", "/sys", "sysfs", 0, "")
	if all[0] == "" {
		m.mount("cgroup", cgroupRoot, "cgroup2", 0, "")
		m.try(delegate())
	} else {
		m.mount("cgroup", cgroupRoot, "tmpfs", 0, "mode=755")
		for _, name := range all {
			options := name
			if name == "systemd" {
				options = "none,name=systemd"
			}
			m.mkdir(filepath.Join(cgroupRoot, name))
			m.mount("cgroup", filepath.Join(cgroupRoot, name), "cgroup", 0, options)
		}
	}
	for _, path := range []string{"/run", "/var/log", "/var/lib"} {
		m.mount("tmpfs", path, "tmpfs", 0, "mode=755")
	}
	m.mkdir("/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", filepath.Join(dir, "kubelet"))
	m.mount(filepath.Join(dir, "kubelet"), "/var/lib/kubelet", "", unix.MS_BIND, "")

	// The kubelet would set these for the whole machine. It finds them set.
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	} {
		file := filepath.Join(dir, filepath.Base(name))
		m.try(os.WriteFile(file, []byte(value+"\n"), 0o600))
		m.mount(file, "/proc/sys/"+name, "", unix.MS_BIND, "")
	}
	m.mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") // volumes of pods propagate from the kubelet
	return m.err
}

// mounter does one step after another until one fails.
type mounter struct{ err error }

func (m *mounter) try(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *mounter) mkdir(paths ...string) {
	for _, path := range paths {
		if m.err == nil {
			m.err = os.MkdirAll(path, 0o755)
		}
	}
}

func (m *mounter) mount(source, target, kind string, flags uintptr, options string) {
	if m.err != nil {
		return
	}
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		m.err = fmt.Errorf("cannot mount %s %s at %s: %w", kind, source, target, err)
	}
}

// umountAll takes a mount and all below it away.
func umountAll(target string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var below []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[4] == target || strings.HasPrefix(fields[4], target+"/") {
			below = append(below, fields[4])
		}
	}
	for i := len(below) - 1; i >= 0; i-- {
		if err := unix.Unmount(below[i], unix.MNT_DETACH); err != nil {
			return fmt.Errorf("cannot unmount %s: %w", below[i], err)
		}
	}
	return nil
}

// delegate lets the cgroup namespace's root of v2 hand all its controllers down, which it may once
// no process is in it itself.
func delegate() error {
	leaf := cgroupRoot + "/init"
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		return err
	}
	if err := write(leaf+"/cgroup.procs", "0"); err != nil {
		return err
	}
	controllers, err := os.ReadFile(cgroupRoot + "/cgroup.controllers")
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(controllers)) {
		if err := write(cgroupRoot+"/cgroup.subtree_control", "+"+controller); err != nil {
			return err
		}
	}
	return nil
}

func write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("cannot write %q: %w", text, err)
	}
	return nil
}

// Missing returns what keeps a node from being started on this machine, or nil.
func Missing() error {
	if os.Geteuid() != 0 {
		return errors.New("a node needs root")
	}
	for _, program := range []string{"ip", "nft", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: run `make cluster-tools`", err)
		}
	}
	if _, err := os.Stat(cni + "/ptp"); err != nil {
		return fmt.Errorf("%w: run `make cluster-tools`", err)
	}
	if _, err := hierarchies(); err != nil {
		return err
	}
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces | unix.CLONE_NEWCGROUP}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("no namespaces may be made here: %w", err)
	}
	_, err := programs()
	return err
}
