package rig

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// StalledClient is a client that opens a watch and then never reads.
type StalledClient struct {
	tcp  *net.TCPConn
	conn net.Conn // tcp, or TLS over it
}

// SmallWindow makes a client's kernel take little before it is full.
const SmallWindow = 16 << 10

// Stall opens a watch at path, and never reads it. A window of 0 is the kernel's own choice, which
// grows to megabytes.
func Stall(ctx context.Context, base, path string, window int) (*StalledClient, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		if window == 0 {
			return nil
		}
		var failed error
		err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, window) })
		if err != nil {
			return err
		}
		return failed
	}}
	conn, err := dialer.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	s := &StalledClient{tcp: conn.(*net.TCPConn), conn: conn}
	if u.Scheme == "https" {
		s.conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the proxy's own, made at its start
	}
	_, err = fmt.Fprintf(s.conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\n\r\n", path, u.Host)
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Addr is the client's address.
func (s *StalledClient) Addr() net.Addr { return s.tcp.LocalAddr() }

// Close hangs up. What the kernel holds unread makes that a reset.
func (s *StalledClient) Close() { _ = s.tcp.Close() }

// End reads at last, and returns how the connection ended and after how many bytes.
func (s *StalledClient) End(patience time.Duration) (int64, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, s.conn)
	if err == nil {
		err = io.EOF
	}
	return n, err
}
