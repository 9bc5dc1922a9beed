package testutil

import (
	"net"
	"sync"
	"sync/atomic"
)

// PipeListener accepts connections that are pipes, for servers in bubbles of synctest.
type PipeListener struct {
	dialled    chan net.Conn
	closing    chan struct{}
	close      func()
	connClosed atomic.Bool
}

// NewPipeListener makes a listener without connections.
func NewPipeListener() *PipeListener {
	l := &PipeListener{dialled: make(chan net.Conn), closing: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closing) })
	return l
}

// Dial connects, and waits for Accept.
func (l *PipeListener) Dial() net.Conn {
	near, far := net.Pipe()
	l.dialled <- &serverConn{near, &l.connClosed}
	return far
}

// HasClosed reports that the server has closed a connection.
func (l *PipeListener) HasClosed() bool { return l.connClosed.Load() }

// Accept implements net.Listener, as do the methods below.
func (l *PipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialled:
		return c, nil
	case <-l.closing:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *PipeListener) Close() error {
	l.close()
	return nil
}

// Addr is an address of no network.
func (l *PipeListener) Addr() net.Addr {
	near, _ := net.Pipe()
	return near.LocalAddr()
}

// serverConn is the server's end of a connection.
type serverConn struct {
	net.Conn
	closed *atomic.Bool
}

func (c *serverConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}
