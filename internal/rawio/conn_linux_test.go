package rawio

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// connPair is a Conn and its other end.
func connPair(t *testing.T) (here *TCPConn, there *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), other.Close() })
	here, ok := NewConn(c).(*TCPConn)
	if !ok {
		t.Fatal("a TCP connection is not made a Conn")
	}
	return here, other.(*net.TCPConn)
}

// What is more than the socket has room for, or not there yet, is waited for, in both directions at
// once.
func TestConnCarriesAll(t *testing.T) {
	here, there := connPair(t)
	want := make([]byte, 16<<20)
	_, _ = rand.Read(want)
	var back bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(there, there)
		_ = there.CloseWrite()
	})
	wg.Go(func() {
		if n, err := here.Write(want); n != len(want) || err != nil {
			t.Errorf("wrote %d of %d bytes: %v", n, len(want), err)
		}
		if err := here.CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	if _, err := io.Copy(&back, struct{ io.Reader }{here}); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if !bytes.Equal(back.Bytes(), want) {
		t.Errorf("%d bytes returned, want the %d that were sent", back.Len(), len(want))
	}
}

// Nothing to send or receive is done at once, as net does it.
func TestConnNothingToCarry(t *testing.T) {
	here, there := connPair(t)
	if n, err := here.Read(nil); n != 0 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	if n, err := here.Write(nil); n != 0 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	there.Close()
	if n, err := here.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("at the end, read %d, %v", n, err)
	}
}

// Errors are package net's own, whatever kind is looked for in them.
func TestConnReportsErrorsAsNet(t *testing.T) {
	full := make([]byte, 64<<20)
	type conn = net.Conn
	read := func(c conn) error {
		_, err := c.Read(make([]byte, 1))
		return err
	}
	write := func(c conn) error {
		n, err := c.Write(full)
		if n == len(full) {
			t.Error("all was written")
		}
		return err
	}
	past := func(set func(time.Time) error) {
		if err := set(time.Now().Add(-time.Second)); err != nil {
			t.Error(err)
		}
	}
	for _, tc := range []struct {
		name    string
		prepare func(here conn, there *net.TCPConn)
		do      func(conn) error
		want    error
		timeout bool
	}{
		{"no time to read", func(here conn, _ *net.TCPConn) { past(here.SetReadDeadline) }, read, os.ErrDeadlineExceeded,
			true},
		{"no time to write", func(here conn, _ *net.TCPConn) { past(here.SetWriteDeadline) }, write, os.ErrDeadlineExceeded,
			true},
		{"read once closed", func(here conn, _ *net.TCPConn) { here.Close() }, read, net.ErrClosed, false},
		{"write once closed", func(here conn, _ *net.TCPConn) { here.Close() }, write, net.ErrClosed, false},
		{"closed while it waits", func(here conn, _ *net.TCPConn) {
			time.AfterFunc(time.Millisecond, func() { here.Close() })
		}, read, net.ErrClosed, false},
		{"time is over while it waits", func(here conn, _ *net.TCPConn) {
			_ = here.SetDeadline(time.Now().Add(time.Millisecond))
		}, write, os.ErrDeadlineExceeded, true},
		{"read after a reset", func(_ conn, there *net.TCPConn) { _ = there.SetLinger(0); there.Close() }, read,
			syscall.ECONNRESET, false},
		{"write after our end", func(here conn, _ *net.TCPConn) { _ = here.(interface{ CloseWrite() error }).CloseWrite() },
			write, syscall.EPIPE, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			check := func(name string, here conn, there *net.TCPConn) {
				tc.prepare(here, there)
				err := tc.do(here)
				var op *net.OpError
				if !errors.Is(err, tc.want) || !errors.As(err, &op) || op.Timeout() != tc.timeout {
					t.Errorf("%s reports %v", name, err)
				}
			}
			here, there := connPair(t)
			check("a Conn", here, there)
			here, there = connPair(t)
			check("net", here.TCPConn, there)
		})
	}
}

// What is no TCP connection stays as it is.
func TestNewConnLeavesOtherConnections(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if NewConn(a) != a {
		t.Error("a pipe became something else")
	}
}
