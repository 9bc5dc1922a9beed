package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/util/cert"

	"spillway/bench/rig"
)

// eventFD is a descriptor to read from without telling Go's scheduler, which would wake the
// runtime's monitor for each event. A goroutine that waits in Read occupies one of the scheduler's
// processors, and delays anything that stops the world.
type eventFD uintptr

// Read implements io.Reader.
func (fd eventFD) Read(b []byte) (int, error) {
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

// collectFrom is from how much memory on garbage is collected: handshakes leave some, deliveries
// none.
const collectFrom = 512 << 20

// serveFloor is the floor's process: the first line of in is an event, and each line after it the
// stamp of one to send now, with those that were ordered with it. It says where it listens, without
// TLS and with it.
func serveFloor(in eventFD, out io.Writer) error {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(collectFrom)
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
	config, err := floorTLS()
	if err != nil {
		return err
	}
	var c clients
	plain, err := c.listen(nil)
	if err != nil {
		return err
	}
	secure, err := c.listen(config)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, plain, secure)
	var burst []byte
	for {
		stamp, err := lines.ReadString('\n')
		if err != nil {
			return nil // our parent has gone
		}
		copy(frame[at:], strings.TrimSpace(stamp))
		burst = append(burst, frame...)
		if lines.Buffered() == 0 {
			c.send(burst)
			burst = burst[:0]
		}
	}
}

// floorTLS is TLS as Spillway has it, with a certificate that no client verifies.
func floorTLS() (*tls.Config, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13,
		DynamicRecordSizingDisabled: true}, nil
}

// clients are those that have been answered.
type clients struct {
	sync.Mutex
	all  []*client
	seal []byte // the records of the one that is sent to
}

// listen takes clients from now on, and says where.
func (c *clients) listen(config *tls.Config) (address string, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", err
	}
	if err := unix.Listen(fd, 4096); err != nil {
		return "", err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return "", err
	}
	go c.accept(fd, config)
	return "127.0.0.1:" + strconv.Itoa(name.(*unix.SockaddrInet4).Port), nil
}

// accept takes clients, one after another, whatever they request.
func (c *clients) accept(listener int, config *tls.Config) {
	request := make([]byte, 4<<10)
	for {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if err != nil {
			continue
		}
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		one := &client{fd: fd}
		var conn io.ReadWriter = one
		if config != nil {
			one.secure = tls.Server(one, config)
			conn = one.secure
		}
		if _, err = conn.Read(request); err == nil {
			_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		}
		if err != nil {
			_ = unix.Close(fd)
			continue
		}
		c.Lock()
		c.all = append(c.all, one)
		c.Unlock()
	}
}

// send sends a frame to all, and forgets those that take no more.
func (c *clients) send(frame []byte) {
	c.Lock()
	defer c.Unlock()
	kept := c.all[:0]
	for _, one := range c.all {
		b := one.sealed(frame, &c.seal)
		n, _, _ := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(one.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)),
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if int(n) != len(b) {
			_ = unix.Close(one.fd)
			continue
		}
		kept = append(kept, one)
	}
	clear(c.all[len(kept):])
	c.all = kept
}

// client is the connection of one, also as crypto/tls needs it.
type client struct {
	net.Conn // nil: the other methods are not called
	fd       int
	secure   *tls.Conn // over it; nil: none
	gather   *[]byte   // where what is written is put instead of sent; nil: it is sent
}

// sealed is b as it is sent: itself, or its records, in seal.
func (c *client) sealed(b []byte, seal *[]byte) []byte {
	if c.secure == nil {
		return b
	}
	*seal = (*seal)[:0]
	c.gather = seal
	_, _ = c.secure.Write(b) // which fails as little as append
	c.gather = nil
	return *seal
}

// Read implements net.Conn.
func (c *client) Read(b []byte) (int, error) {
	n, err := unix.Read(c.fd, b)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

// Write implements net.Conn.
func (c *client) Write(b []byte) (int, error) {
	if c.gather != nil {
		*c.gather = append(*c.gather, b...)
		return len(b), nil
	}
	n, err := unix.Write(c.fd, b)
	return max(n, 0), err
}
