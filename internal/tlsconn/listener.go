package tlsconn

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// Serve serves a server's listener over TLS by server.TLSConfig, as http.Server.ServeTLS does for
// HTTP/1.1, with the bounds of this package.
func Serve(server *http.Server, listener net.Listener) error {
	return server.Serve(&secureListener{
		Listener: listener, config: server.TLSConfig, handshakeTimeout: server.ReadHeaderTimeout, log: server.ErrorLog,
	})
}

// secureListener accepts connections for a net/http server.
type secureListener struct {
	net.Listener
	config           *tls.Config
	handshakeTimeout time.Duration
	log              *log.Logger
}

// Accept implements net.Listener.
func (l *secureListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	below := &meteredConn{Conn: c}
	return &servedConn{SecureConn: NewSecureConn(below, &below.meter, l.config), listener: l}, nil
}

// meteredConn is a connection below TLS.
type meteredConn struct {
	net.Conn
	meter Meter
}

// Read implements net.Conn.
func (c *meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(c.meter.LimitRead(b))
	if flood := c.meter.CountRead(b[:n]); flood != nil {
		return 0, flood
	}
	return n, err
}

// servedConn is a connection of a net/http server, which takes the state of TLS from it. Because it
// is no *tls.Conn, the server leaves the handshake to it.
type servedConn struct {
	*SecureConn
	listener *secureListener
}

// ConnectionState is the state after the handshake, which it waits for. If that fails, so does the
// next read.
func (c *servedConn) ConnectionState() tls.ConnectionState {
	_ = c.SetDeadline(time.Now().Add(c.listener.handshakeTimeout)) // fails on a closed connection, as what follows will
	err := c.Handshake()
	_ = c.SetDeadline(time.Time{})
	if err != nil {
		c.refuse(err)
	}
	return c.SecureConn.ConnectionState()
}

// refuse logs a handshake that failed, and answers a client that speaks HTTP, as net/http does.
func (c *servedConn) refuse(err error) {
	var record tls.RecordHeaderError
	if errors.As(err, &record) && record.Conn != nil && isHTTP(record.RecordHeader) {
		_, _ = io.WriteString(record.Conn, notTLSMessage)
		err = errors.New("client sent an HTTP request to an HTTPS server")
	}
	c.listener.log.Printf("http: TLS handshake error from %s: %v", c.RemoteAddr(), err)
}

// notTLSMessage is the answer of net/http to a request without TLS.
const notTLSMessage = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"

// isHTTP reports that what came in the place of a record's header begins a request.
func isHTTP(header [recordHeaderBytes]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}
