package tlsconn

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"spillway/internal/tlsconn/tlsconntest"
)

// What TLS holds for a client that has proven nothing, in bytes: the figures of SECURITY.md.
const (
	heldInHandshake      = 64 << 10
	heldAfterHandshake   = 64 << 10
	heldWithCertificates = 128 << 10
)

// TestConnectionsHoldLittle measures what a client makes TLS hold that sends as much as it may: of
// a handshake, of a message after it, and of certificates that take the most memory for their
// bytes.
func TestConnectionsHoldLittle(t *testing.T) {
	dense := densest(t)
	for _, c := range []struct {
		name string
		most int
		send func(t *testing.T, address string) net.Conn
	}{
		{"a handshake without an end", heldInHandshake, func(t *testing.T, address string) net.Conn {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write(unfinishedHello(HandshakeBytesLimit)) // fails if it is cut
			return c
		}},
		{"a message without an end", heldAfterHandshake, func(t *testing.T, address string) net.Conn {
			c, err := tlsconntest.Dial(t, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SendUnfinished(SilentBytesLimit - 200) // of records around it
			return c
		}},
		{"certificates, and a message without an end", heldWithCertificates, func(t *testing.T, address string) net.Conn {
			c, err := tlsconntest.Dial(t, address, nil, dense)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SendUnfinished(SilentBytesLimit - 200)
			return c
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ln, config := listen(t)
			const clients = 100
			reading := make(chan *meteredConn, clients)
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					below := &meteredConn{Conn: c}
					go func() {
						defer c.Close()
						_, _ = io.Copy(io.Discard, Server(below, &below.meter, config))
					}()
					reading <- below
				}
			}()
			before := inUse()
			all, servers := make([]net.Conn, clients), make([]*meteredConn, clients)
			for i := range all {
				all[i] = c.send(t, ln.Addr().String())
				servers[i] = <-reading
			}
			drained(t, servers)
			held := (inUse() - before) / clients
			t.Logf("%d bytes for a connection", held)
			if held > c.most || held < c.most/4 {
				t.Errorf("a connection holds %d bytes, the documented bound is %d", held, c.most)
			}
			for _, one := range all {
				_ = one.Close()
			}
			runtime.KeepAlive(servers)
		})
	}
}

// drained waits until servers have read all that was sent to them.
func drained(t *testing.T, servers []*meteredConn) {
	t.Helper()
	for _, s := range servers {
		end := time.Now().Add(time.Minute)
		for unread(t, s.Conn) > 0 {
			if time.Now().After(end) {
				t.Fatal("a server does not read")
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// unread is how many bytes of a connection the kernel has for its reader; none once it is closed.
func unread(t *testing.T, c net.Conn) (n int) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }) // fails on a closed connection
	return n
}

// densest is a certificate that just fits, of the kind that takes the most memory for its bytes.
func densest(t *testing.T) tls.Certificate {
	t.Helper()
	policies := tlsconntest.Dense["usages"]
	for n := 2000; ; n -= 50 {
		cert := tlsconntest.Certificate(t, policies(n))
		parsed, err := x509.ParseCertificate(cert.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if CheckCertificates(tls.ConnectionState{PeerCertificates: []*x509.Certificate{parsed}}) == nil {
			return cert
		}
	}
}
