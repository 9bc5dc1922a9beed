package main

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

// staller is a client that opens a watch and then never reads.
type staller struct {
	tcp  *net.TCPConn
	conn net.Conn // tcp, or TLS over it
}

// smallWindow makes a client's kernel take little before it is full.
const smallWindow = 16 << 10

// stall opens a watch at path. A window of 0 is the kernel's own choice, which grows to megabytes.
func stall(ctx context.Context, base, path string, window int) (*staller, error) {
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
	s := &staller{tcp: conn.(*net.TCPConn), conn: conn}
	if u.Scheme == "https" {
		s.conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the proxy's own, made at its start
	}
	_, err = fmt.Fprintf(s.conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\n\r\n", path, u.Host)
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *staller) addr() net.Addr { return s.tcp.LocalAddr() }

func (s *staller) close() { _ = s.tcp.Close() }

// end reads at last, and returns how the connection ended and after how many bytes.
func (s *staller) end(patience time.Duration) (int64, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, s.conn)
	if err == nil {
		err = io.EOF
	}
	return n, err
}
