package testutil

import (
	"net"
	"sync"
	"sync/atomic"
)

// PipeListener accepts connections that are pipes, for servers in bubbles with a time of their own.
type PipeListener struct {
	accepted chan net.Conn
	closing  chan struct{}
	close    func()
	closed   atomic.Bool
}

// NewPipeListener makes a listener without connections.
func NewPipeListener() *PipeListener {
	l := &PipeListener{accepted: make(chan net.Conn), closing: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closing) })
	return l
}

// Dial connects.
func (l *PipeListener) Dial() net.Conn {
	near, far := net.Pipe()
	l.accepted <- &notedConn{near, &l.closed}
	return far
}

// Closed reports that the server has closed a connection.
func (l *PipeListener) Closed() bool { return l.closed.Load() }

// Accept implements net.Listener, as the methods below.
func (l *PipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
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

type notedConn struct {
	net.Conn
	closed *atomic.Bool
}

func (c *notedConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}
