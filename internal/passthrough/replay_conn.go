package passthrough

import (
	"net"
)

// replayConn is a hijacked connection with a request head in front. Reads see the head first, then
// what the server had buffered, then the client. Closing it ends the exchange.
type replayConn struct {
	net.Conn
	head []byte // owned by Read, which net/http never calls from two goroutines at once
	x    *exchange
}

// Read implements net.Conn. It never mixes the head with what comes after it.
func (c *replayConn) Read(p []byte) (int, error) {
	if len(c.head) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.head)
	if c.head = c.head[n:]; len(c.head) == 0 {
		c.head = nil
	}
	return n, nil
}

// CloseWrite ends the direction to the client, if the connection can do that; net/http and upgraded
// protocols use it.
func (c *replayConn) CloseWrite() error {
	conn := c.Conn
	if h, ok := conn.(interface{ UnsafeConn() net.Conn }); ok {
		conn = h.UnsafeConn()
	}
	if w, ok := conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// Close implements net.Conn.
func (c *replayConn) Close() error {
	err := c.Conn.Close()
	c.x.end()
	return err
}
