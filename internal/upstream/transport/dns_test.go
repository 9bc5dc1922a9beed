package transport

import (
	"context"
	"net"
	"testing"
	"time"
)

// A name whose server does not answer is given up when a dial is, though the request would wait.
func TestNameThatDoesNotResolveInTimeIsGivenUp(t *testing.T) {
	t.Parallel()
	mute, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	d := newDialer(newAddressTable(func() {}))
	d.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var plain net.Dialer
		return plain.DialContext(ctx, "udp", mute.LocalAddr().String())
	}}
	began := time.Now()
	conn, err := d.DialContext(t.Context(), "tcp", "apiserver.example.com.:443")
	if err == nil {
		conn.Close()
		t.Fatal("connected")
	}
	if took := time.Since(began); took > dialTimeout+time.Second {
		t.Errorf("given up after %v: %v", took, err)
	}
}
