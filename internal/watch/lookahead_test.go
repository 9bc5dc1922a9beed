package watch

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"testing"
)

// TestLookahead holds that what lies in other packages is found. Where it fails because another
// version of Go keeps it elsewhere, nothing is wrong but that turns take longer.
func TestLookahead(t *testing.T) {
	if len(tlsPlaces) < 6 {
		t.Errorf("of tls.Conn, %d places are known", len(tlsPlaces))
	}
	identity := httptest.NewUnstartedServer(nil)
	identity.StartTLS()
	defer identity.Close()
	out := &struct{ outlet }{}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := &tls.Config{Certificates: identity.TLS.Certificates, MaxVersion: version}
		c, err := tls.Dial("tcp", identity.Listener.Addr().String(),
			&tls.Config{InsecureSkipVerify: true, MaxVersion: version}) //nolint:gosec // a throw-away certificate
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		b := behindOf(out, c)
		if b.outlet == nil || b.descriptor == nil || b.nonces == nil {
			t.Errorf("TLS %x: known are outlet %v, descriptor %v, nonces %v", version, b.outlet, b.descriptor, b.nonces)
		}
		if len(b.cipher) < 256 { // AES's round keys alone are 176 bytes, twice
			t.Errorf("TLS %x: %d bytes of a cipher are known", version, len(b.cipher))
		}
		b.read()
		if b := behindOf(out, tls.Server(c.NetConn(), config)); b.nonces != nil || b.cipher != nil {
			t.Errorf("%d bytes of a cipher before there is one", len(b.cipher))
		}
	}
	plain, _ := net.Pipe()
	defer plain.Close()
	if b := behindOf(nil, plain); b.outlet != nil || b.descriptor != nil || b.nonces != nil || b.cipher != nil {
		t.Errorf("behind nothing but a pipe is %v", b)
	}
}
