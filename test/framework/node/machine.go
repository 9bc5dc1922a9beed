package node

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"spillway/test/framework/process"
)

// place is a node's number, from which its name and its addresses follow.
type place struct{ number int }

func placeOf(number int) place { return place{number} }

// name is the node's, and its host's.
func (p place) name() string {
	if p.number == 0 {
		return "node"
	}
	return fmt.Sprint("node-", p.number+1)
}

// address is the node's, and podNet the network of its pods.
func (p place) address() string { return fmt.Sprint("10.123.0.", p.number+1) }
func (p place) podNet() string  { return fmt.Sprintf("10.244.%d.0/24", p.number) }

// link is the first node's end of the link to a worker.
func (p place) link() string { return fmt.Sprint("worker", p.number+1) }

// machine is one node's processes, in namespaces of their own.
type machine struct {
	place
	dir    string // of its logs, and of all that it writes
	cgroup string
	init   *process.Child // PID 1; nil: it has never been powered on
}

// powerOn starts PID 1, which starts all other programs, and returns when the node is Ready.
// connected is called when the namespaces are there; nil: no function is called.
func (m *machine) powerOn(ctx context.Context, log io.Writer, connected func() error, files ...*os.File) error {
	progress, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer progress.Close()
	said, err := os.OpenFile(filepath.Join(m.dir, "init.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{outerInit, m.dir, strconv.Itoa(m.number), m.cgroup}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	cmd.ExtraFiles = append([]*os.File{out}, files...)
	m.init, err = process.Start(cmd, nil, said)
	out.Close()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, m.init.Kill)
	defer stop()
	if connected != nil {
		err = connected()
	}
	for lines := bufio.NewScanner(progress); err == nil && lines.Scan(); {
		line := lines.Text()
		if line == done {
			return nil
		}
		if text, ok := strings.CutPrefix(line, failed); ok {
			err = errors.New(text)
			break
		}
		fmt.Fprintf(log, "%s: %s\n", m.name(), line)
	}
	m.init.Kill()
	text, _ := os.ReadFile(said.Name()) // the error says enough without
	return fmt.Errorf("%s did not start: %w\n%s", m.name(), cmp.Or(err, context.Cause(ctx), m.init.Err), text)
}

// powerOff ends all processes.
func (m *machine) powerOff() error {
	if m.init == nil {
		return nil
	}
	m.init.Kill() // PID 1: the kernel ends the others before it reports the end of this one
	var err error
	for range 100 { // a cgroup is busy until the last process in it has been reaped
		if err = removeCgroups(m.cgroup); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// command is a program to be run in the machine's mount, network and PID namespaces.
func (m *machine) command(program string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--target=" + strconv.Itoa(m.init.Pid()), "--mount", "--net", "--pid",
		program}, args...)...)
}

// uplink is a worker's end of its link to the first node.
const uplink = "uplink"

// connect links a worker's network with that of the first node, which forwards between workers.
func (m *machine) connect(first *machine) error {
	_ = ip(first, "link delete "+m.link()) // what disconnect has left; mostly nothing
	return ip(first,
		fmt.Sprintf("link add %s type veth peer name %s netns %d", m.link(), uplink, m.init.Pid()),
		fmt.Sprintf("address add %s/32 dev %s", first.address(), m.link()),
		fmt.Sprintf("link set %s up", m.link()),
		fmt.Sprintf("route add %s/32 dev %s", m.address(), m.link()),
		fmt.Sprintf("route add %s via %s", m.podNet(), m.address()),
	)
}

// disconnect takes the worker's end of the link away: whatever its sockets still say, nothing of it
// arrives. The first node's end stays, as a network card does. Without it the kernel would forget
// the connections to the worker that it has translated, and their clients would be refused at once.
func (m *machine) disconnect(first *machine) error {
	lost := "lost" + strconv.Itoa(m.number+1)
	err := ip(m, fmt.Sprintf("link set %s netns %d name %s", uplink, first.init.Pid(), lost))
	if err != nil {
		return err
	}
	return ip(first, "link set "+lost+" up")
}

// ip runs ip(8) in a machine's network, and in our PID namespace.
func ip(m *machine, commands ...string) error {
	for _, command := range commands {
		cmd := exec.Command("nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", m.init.Pid()), "ip"},
			strings.Fields(command)...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, out)
		}
	}
	return nil
}
