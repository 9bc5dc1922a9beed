package serve

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"testing"
)

// TestLookahead holds that what lies in other packages is found. Where it fails because another version of Go keeps it elsewhere, nothing
// is wrong but that turns take longer.
func TestLookahead(t *testing.T) {
	if len(tlsPlaces) < 4 {
		t.Errorf("of tls.Conn, %d places are known", len(tlsPlaces))
	}
	identity := httptest.NewUnstartedServer(nil)
	identity.StartTLS()
	defer identity.Close()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := &tls.Config{Certificates: identity.TLS.Certificates, MaxVersion: version}
		c, err := tls.Dial("tcp", identity.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: version}) //nolint:gosec // a throw-away certificate
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if keys := cipherOf(c); len(keys) < 256 { // AES's round keys alone are 176 bytes, twice
			t.Errorf("TLS %x: %d bytes of a cipher are known", version, len(keys))
		}
		raw := rawConn(c.NetConn())
		if at := descriptorOf(raw); at == nil || !*at {
			t.Errorf("next to the descriptor of a TCP connection: %v", at)
		}
		if keys := cipherOf(tls.Server(c.NetConn(), config)); keys != nil {
			t.Errorf("%d bytes of a cipher before there is one", len(keys))
		}
	}
	plain, _ := net.Pipe()
	defer plain.Close()
	if keys := cipherOf(plain); keys != nil {
		t.Errorf("%d bytes of a cipher without TLS", len(keys))
	}
	if at := descriptorOf(nil); at != nil {
		t.Error("a descriptor of nothing")
	}
}
