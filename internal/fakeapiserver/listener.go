package fakeapiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
)

// listener accepts for the HTTP server and knows every connection, so that it can close them,
// refuse new ones or leave them unanswered. The server must not see it fail while it is down, so
// Accept waits then. It keeps its port until it is closed.
type listener struct {
	addr net.Addr
	port *heldPort

	mu       sync.Mutex
	inner    net.Listener // nil while it is down
	isFrozen bool         // no byte is handed on, and no connection
	isClosed bool
	conns    map[*conn]struct{}
	wake     chan struct{} // closed and replaced when any of the above but conns changes
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

// Accept returns the next connection. While the listener is down or frozen it waits.
func (l *listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		inner, isFrozen, isClosed, wake := l.inner, l.isFrozen, l.isClosed, l.wake
		l.mu.Unlock()
		switch {
		case isClosed:
			return nil, net.ErrClosed
		case inner == nil || isFrozen:
			<-wake
			continue
		}
		c, err := inner.Accept()
		if err != nil {
			if l.listensAt(inner) {
				return nil, err
			}
			continue // closed by down, or for good
		}
		if tracked := l.track(c, inner); tracked != nil {
			return tracked, nil
		}
	}
}

func (l *listener) listensAt(inner net.Listener) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inner == inner && !l.isClosed
}

// track registers a connection of inner. The result is nil, and the connection closed, if the
// listener went down meanwhile. If it was frozen meanwhile, so is the connection.
func (l *listener) track(c net.Conn, inner net.Listener) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed || l.inner != inner {
		_ = c.Close()
		return nil
	}
	tracked := &conn{Conn: c, owner: l, closed: make(chan struct{})}
	l.conns[tracked] = struct{}{}
	return tracked
}

func (l *listener) changedLocked() {
	close(l.wake)
	l.wake = make(chan struct{})
}

// down refuses new connections until up.
func (l *listener) down() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner != nil {
		_ = l.inner.Close()
		l.inner = nil
	}
	l.isFrozen = false
	l.changedLocked()
}

// freeze keeps every byte from now on where it is, in both directions, and every new connection in
// the kernel, until up.
func (l *listener) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isFrozen = true
	l.changedLocked()
}

func (l *listener) up() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		return errors.New("the server is closed; make a new one")
	}
	if l.inner == nil {
		inner, err := l.port.listen()
		if err != nil {
			return err
		}
		l.inner = inner
	}
	l.isFrozen = false
	l.changedLocked()
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
	if l.isClosed {
		return nil
	}
	l.isClosed, l.isFrozen = true, false
	l.port.release()
	l.changedLocked()
	if l.inner == nil {
		return nil
	}
	return l.inner.Close()
}

// conn is one accepted connection.
type conn struct {
	net.Conn
	owner  *listener
	once   sync.Once
	closed chan struct{}
	err    error // of Close
}

// Read hands on what has arrived, unless the connection is frozen.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.awaitThaw()
	return n, err
}

// Write sends, unless the connection is frozen.
func (c *conn) Write(b []byte) (int, error) {
	c.awaitThaw()
	return c.Conn.Write(b)
}

// awaitThaw waits while the connection is frozen, and open.
func (c *conn) awaitThaw() {
	for {
		c.owner.mu.Lock()
		isFrozen, wake := c.owner.isFrozen, c.owner.wake
		c.owner.mu.Unlock()
		if !isFrozen {
			return
		}
		select {
		case <-wake:
		case <-c.closed:
			return
		}
	}
}

// Close closes the connection once and forgets it.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.owner.mu.Lock()
		delete(c.owner.conns, c)
		c.owner.mu.Unlock()
		c.err = c.Conn.Close()
		close(c.closed)
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
