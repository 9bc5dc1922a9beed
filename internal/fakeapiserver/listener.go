package fakeapiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
)

// listener accepts for the HTTP server and knows every connection, so that it can close them,
// refuse new ones or leave them unanswered. The server must not see it fail while it is down, so
// Accept waits then. It keeps its port until it is closed.
type listener struct {
	addr net.Addr
	port port

	mu     sync.Mutex
	inner  net.Listener // nil while down
	hung   bool
	frozen chan struct{} // closed when no connection is frozen any more; nil while none is
	closed bool
	late   []*conn // accepted while hung, served after
	conns  map[*conn]struct{}
	wake   chan struct{} // closed and replaced when any of the above changes
}

// conn is one accepted connection.
type conn struct {
	net.Conn
	owner *listener
	once  sync.Once
	err   error
}

// port is one of 127.0.0.1.
type port interface {
	listen() (net.Listener, error) // at most one listener at a time
	release()
}

func newListener() (*listener, error) {
	port, err := hold()
	if err != nil {
		return nil, err
	}
	inner, err := port.listen()
	if err != nil {
		port.release()
		return nil, err
	}
	return &listener{addr: inner.Addr(), port: port, inner: inner, conns: map[*conn]struct{}{}, wake: make(chan struct{})},
		nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// Accept returns the next connection; while down or hung it waits.
func (l *listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		inner, hung, closed, wake := l.inner, l.hung, l.closed, l.wake
		var late *conn
		if n := len(l.late); n > 0 && !hung {
			late, l.late = l.late[0], l.late[1:]
		}
		l.mu.Unlock()
		switch {
		case closed:
			return nil, net.ErrClosed
		case late != nil:
			return late, nil
		case inner == nil || hung:
			<-wake
			continue
		}
		c, err := inner.Accept()
		if err != nil {
			if l.serving(inner) {
				return nil, err
			}
			continue // closed by down
		}
		if admitted := l.admit(c); admitted != nil {
			return admitted, nil
		}
	}
}

func (l *listener) serving(inner net.Listener) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inner == inner && !l.closed
}

// admit registers a connection. One that slipped in while the door was being shut waits until it
// opens.
func (l *listener) admit(c net.Conn) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.inner == nil {
		_ = c.Close()
		return nil
	}
	tracked := &conn{Conn: c, owner: l}
	l.conns[tracked] = struct{}{}
	if l.hung {
		l.late = append(l.late, tracked)
		return nil
	}
	return tracked
}

func (l *listener) changeLocked() {
	close(l.wake)
	l.wake = make(chan struct{})
}

func (l *listener) down() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner != nil {
		_ = l.inner.Close()
		l.inner = nil
	}
	l.hung = false
	l.thawLocked()
	l.changeLocked()
}

func (l *listener) hang() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hung = true
	l.changeLocked()
}

// freeze keeps every byte from now on where it is, in both directions, until up.
func (l *listener) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hung = true
	if l.frozen == nil {
		l.frozen = make(chan struct{})
	}
	l.changeLocked()
}

func (l *listener) thawLocked() {
	if l.frozen != nil {
		close(l.frozen)
		l.frozen = nil
	}
}

func (l *listener) up() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("the server is closed; make a new one")
	}
	l.hung = false
	l.thawLocked()
	if l.inner == nil {
		inner, err := l.port.listen()
		if err != nil {
			return err
		}
		l.inner = inner
	}
	l.changeLocked()
	return nil
}

// cut resets all connections.
func (l *listener) cut() {
	l.mu.Lock()
	conns := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, c := range conns {
		c.reset()
	}
}

// shut closes everything for good.
func (l *listener) shut() {
	_ = l.Close()
	l.cut()
}

// Close stops accepting.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.port.release()
	l.thawLocked()
	l.changeLocked()
	if l.inner == nil {
		return nil
	}
	return l.inner.Close()
}

// Read hands on what has arrived, unless the connection is frozen.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.thawed()
	return n, err
}

// Write sends, unless the connection is frozen.
func (c *conn) Write(b []byte) (int, error) {
	c.thawed()
	return c.Conn.Write(b)
}

// thawed waits while the connection is frozen.
func (c *conn) thawed() {
	for {
		c.owner.mu.Lock()
		frozen := c.owner.frozen
		c.owner.mu.Unlock()
		if frozen == nil {
			return
		}
		<-frozen
	}
}

// Close closes the connection once and forgets it.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.owner.mu.Lock()
		delete(c.owner.conns, c)
		c.owner.mu.Unlock()
		c.err = c.Conn.Close()
	})
	return c.err
}

// reset closes the connection with an RST where the transport can.
func (c *conn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

type connKey struct{}

// withConn remembers the connection of a request, beneath TLS.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// RefusingAddress is one that refuses connections for as long as the test runs. It is the near end
// of a connection: the port of a listener that was closed could be given to another server by the
// time that it is used.
func RefusingAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	conn, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().String()
}

// SilentAddress is an address at which connections are made, and nothing is ever read or answered.
func SilentAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}
