package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
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

	"golang.org/x/net/http2"
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
// stamp of one to send now, with those that were ordered with it. It says where it listens: without
// TLS, with it, and over HTTP/2.
func serveFloor(in eventFD, out io.Writer) error {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(collectFrom)
	runtime.GOMAXPROCS(2) // the other one is for accept
	lines := bufio.NewReader(in)
	event, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	at := bytes.Index(event, []byte(rig.StampPrefix))
	if at < 0 {
		return fmt.Errorf("no stamp in %q", event)
	}
	at += len(rig.StampPrefix)
	config, err := floorTLS()
	if err != nil {
		return err
	}
	overHTTP2 := config.Clone()
	overHTTP2.NextProtos = []string{http2.NextProtoTLS}
	var c clients
	for _, config := range []*tls.Config{nil, config, overHTTP2} {
		address, err := c.listen(config)
		if err != nil {
			return err
		}
		fmt.Fprint(out, address, " ")
	}
	fmt.Fprintln(out)
	var chunks []byte
	var data bytes.Buffer
	framer := http2.NewFramer(&data, nil)
	for {
		stamp, err := lines.ReadString('\n')
		if err != nil {
			return nil // our parent has gone
		}
		copy(event[at:], strings.TrimSpace(stamp))
		chunks = fmt.Appendf(chunks, "%x\r\n%s\r\n", len(event), event)
		if err := framer.WriteData(floorStream, false, event); err != nil {
			return err
		}
		if lines.Buffered() == 0 {
			c.send(chunks, data.Bytes())
			chunks = chunks[:0]
			data.Reset()
		}
	}
}

// floorStream is the only stream of a client over HTTP/2.
const floorStream = 1

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
		if config != nil && config.NextProtos != nil {
			err = one.beginHTTP2()
		} else if _, err = conn.Read(request); err == nil {
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

// send sends all clients the same, in the frames of their protocol, and forgets those that take no
// more. What those of HTTP/2 have sent is read.
func (c *clients) send(chunks, data []byte) {
	c.Lock()
	defer c.Unlock()
	kept := c.all[:0]
	for _, one := range c.all {
		frames := chunks
		if one.http2 {
			frames = data
			one.readGrants(len(data))
		}
		b := one.sealed(frames, &c.seal)
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

	http2 bool // a read does not wait
	owed  int  // bytes that the client has not granted again
}

// beginHTTP2 answers the only request of a connection.
func (c *client) beginHTTP2() error {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.secure, preface); err != nil {
		return err
	}
	framer := http2.NewFramer(c.secure, c.secure)
	if err := errors.Join(framer.WriteSettings(), framer.WriteSettingsAck()); err != nil {
		return err
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		if frame.Header().Type == http2.FrameHeaders {
			c.http2 = true
			const status200 = 0x88 // RFC 7541, appendix A
			return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: floorStream, BlockFragment: []byte{status200},
				EndHeaders: true})
		}
	}
}

// grantedAt is how many bytes a client takes before it grants them again.
const grantedAt = 4 << 10

// readGrants reads the WINDOW_UPDATE frames that a client sends about now, with one system call:
// what they say does not matter, because its windows do not fill.
func (c *client) readGrants(sent int) {
	if c.owed += sent; c.owed < grantedAt {
		return
	}
	c.owed = 0
	var frames [256]byte
	_, _ = c.secure.Read(frames[:]) // nothing may have come
}

// nothingYet is the error of a read that does not wait. It is temporary, for crypto/tls.
type nothingYet struct{}

func (nothingYet) Error() string   { return "nothing has come yet" }
func (nothingYet) Timeout() bool   { return true }
func (nothingYet) Temporary() bool { return true }

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
	if c.http2 {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EAGAIN:
			return 0, nothingYet{}
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		}
		return int(n), nil
	}
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
