package tlsconn

import (
	"context"
	"crypto/tls"
	"net"
)

// LayeredConn is a connection on top of another one, which NetConn returns: that of crypto/tls, and
// wrappers that follow its example.
type LayeredConn interface{ NetConn() net.Conn }

// SecureConn is the server's side of a TLS connection, on top of one with a Meter.
type SecureConn struct {
	*tls.Conn
	meter *Meter
}

// NewSecureConn makes a TLS connection on top of one whose reads meter limits and counts.
func NewSecureConn(below net.Conn, meter *Meter, config *tls.Config) *SecureConn {
	return &SecureConn{Conn: tls.Server(below, config), meter: meter}
}

// Handshake runs the handshake, unless it is done.
func (c *SecureConn) Handshake() error { return c.HandshakeContext(context.Background()) }

// HandshakeContext is Handshake until ctx ends.
func (c *SecureConn) HandshakeContext(ctx context.Context) error {
	err := c.Conn.HandshakeContext(ctx)
	if err == nil {
		c.meter.noteHandshake()
	}
	return err
}

// Read implements net.Conn.
func (c *SecureConn) Read(b []byte) (int, error) {
	if !c.meter.handshakeDone {
		if err := c.Handshake(); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.meter.notePlaintext()
	}
	return n, err
}
