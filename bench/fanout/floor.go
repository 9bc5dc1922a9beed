package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"spillway/bench/rig"
)

const (
	floorName    = "bare loop of sends"
	floorCommand = "serve-floor" // the argument that makes this program the server below
)

// floor is a server that does as little as can be done: it sends the frame of an event to each of its clients, in one loop of system
// calls that do not block. It is this program, started once more, so that its CPU can be told from ours.
type floor struct {
	server rig.Server
	cmd    *exec.Cmd
	orders io.WriteCloser
}

// startFloor starts it with the frame of an event that Spillway sent.
func (s *show) startFloor(ctx context.Context) (*floor, error) {
	watch, err := rig.OpenWatch(ctx, rig.NewHTTPClient(), s.Plain().URL+rig.ConfigMaps, map[string][]string{"resourceVersion": {"0"}})
	if err != nil {
		return nil, err
	}
	defer watch.Close()
	var line []byte
	for !bytes.Contains(line, []byte(`"padding":"`)) || len(line) < *size {
		event, err := watch.Next()
		if err != nil {
			return nil, err
		}
		line = event.Line
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f := &floor{cmd: exec.Command(self, floorCommand)}
	f.cmd.Stderr = os.Stderr
	if f.orders, err = f.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := rig.Start(f.cmd); err != nil {
		return nil, err
	}
	if _, err := f.orders.Write(line); err != nil {
		f.stop()
		return nil, err
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		f.stop()
		return nil, fmt.Errorf("the bare loop does not say where it listens: %w", err)
	}
	f.server = rig.Server{Name: floorName, URL: "http://" + strings.TrimSpace(address), Pid: f.cmd.Process.Pid}
	return f, nil
}

func (f *floor) stop() {
	_ = f.cmd.Process.Kill() // fails only when it is gone already
	_ = f.cmd.Wait()         // says that it was killed
}

// run orders events at a rate, as a rig.Writer writes them.
func (f *floor) run(ctx context.Context, perSecond float64, _ int, while time.Duration) (int, error) {
	n := 0
	for began := time.Now(); ctx.Err() == nil; n++ {
		due := time.Duration(float64(n) / perSecond * float64(time.Second))
		if due >= while {
			break
		}
		time.Sleep(due - time.Since(began))
		if _, err := fmt.Fprintln(f.orders, time.Now().UnixNano()); err != nil {
			return n, err
		}
	}
	return n, ctx.Err()
}

// clients are those that have been answered.
type clients struct {
	sync.Mutex
	fds []int
}

// orders is a descriptor to read from without telling Go's scheduler, which would wake the runtime's monitor for each event. Who waits for
// them keeps a processor of the scheduler's, and stops what would stop the world.
type orders uintptr

// Read implements io.Reader.
func (fd orders) Read(b []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		default:
			return int(n), nil
		}
	}
}

// serveFloor is that server: the first line of in is an event, and each line after it the stamp of one to send now.
func serveFloor(in orders, out io.Writer) error {
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(2) // the other one is for accept
	lines := bufio.NewReader(in)
	event, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	frame := fmt.Appendf(nil, "%x\r\n%s\r\n", len(event), event)
	at := bytes.Index(frame, []byte(rig.StampPrefix))
	if at < 0 {
		return fmt.Errorf("no stamp in %q", event)
	}
	at += len(rig.StampPrefix)
	listener, address, err := listen()
	if err != nil {
		return err
	}
	var c clients
	go c.accept(listener)
	fmt.Fprintln(out, address)
	for {
		stamp, err := lines.ReadString('\n')
		if err != nil {
			return nil // our parent has gone
		}
		copy(frame[at:], strings.TrimSpace(stamp))
		c.send(frame)
	}
}

func listen() (fd int, address string, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, "", err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, "", err
	}
	if err := unix.Listen(fd, 4096); err != nil {
		return 0, "", err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, "", err
	}
	return fd, "127.0.0.1:" + strconv.Itoa(name.(*unix.SockaddrInet4).Port), nil
}

// accept takes clients, one after another, whatever they ask for.
func (c *clients) accept(listener int) {
	request := make([]byte, 4<<10)
	for {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if err != nil {
			continue
		}
		_, _ = unix.Read(fd, request) // who is gone already is found by the first send
		_, _ = unix.Write(fd, []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"))
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		c.Lock()
		c.fds = append(c.fds, fd)
		c.Unlock()
	}
}

// send sends a frame to all, and forgets those that take no more.
func (c *clients) send(frame []byte) {
	c.Lock()
	defer c.Unlock()
	kept := c.fds[:0]
	for _, fd := range c.fds {
		n, _, _ := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&frame[0])), uintptr(len(frame)),
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if int(n) != len(frame) {
			_ = unix.Close(fd)
			continue
		}
		kept = append(kept, fd)
	}
	c.fds = kept
}
