package tlsconn

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"spillway/internal/tlsconn/tlsconntest"
)

// documented is how many bytes SECURITY.md says that a client without credentials may make TLS hold
// in a phase of its connection.
func documented(t *testing.T, phase string) int {
	t.Helper()
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kibibytes int
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !strings.HasPrefix(strings.TrimSpace(cells[1]), phase) {
			continue
		}
		if _, err := fmt.Sscanf(cells[2], "%d KiB", &kibibytes); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return kibibytes << 10
	}
	t.Fatalf("SECURITY.md has no row %q", phase)
	return 0
}

// TestConnectionsHoldLittle measures what a client makes TLS hold that sends as much as it may: of
// a handshake, of a message after it, and of certificates that take the most memory for their
// bytes.
func TestConnectionsHoldLittle(t *testing.T) {
	dense := densest(t)
	for _, c := range []struct {
		phase string // in SECURITY.md
		send  func(t *testing.T, address string) net.Conn
	}{
		{"handshake without an end", func(t *testing.T, address string) net.Conn {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write(tlsconntest.UnfinishedHello(HandshakeBytesLimit)) // fails if it is cut
			return c
		}},
		{"messages of TLS after the handshake", func(t *testing.T, address string) net.Conn {
			c, err := tlsconntest.Dial(t, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SendUnfinished(SilentBytesLimit - 200) // of records around it
			return c
		}},
		{"handshake with certificates", func(t *testing.T, address string) net.Conn {
			c, err := tlsconntest.Dial(t, address, nil, dense)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SendUnfinished(SilentBytesLimit - 200)
			return c
		}},
	} {
		t.Run(c.phase, func(t *testing.T) {
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
						_, _ = io.Copy(io.Discard, NewSecureConn(below, &below.meter, config))
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
			if most := documented(t, c.phase); held > most || held < most/2 {
				t.Errorf("a connection holds %d bytes, SECURITY.md says %d", held, most)
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
	for n := 2000; ; n -= 50 {
		cert := tlsconntest.Certificate(t, tlsconntest.Usages(n))
		parsed, err := x509.ParseCertificate(cert.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if CheckCertificates(tls.ConnectionState{PeerCertificates: []*x509.Certificate{parsed}}) == nil {
			return cert
		}
	}
}
