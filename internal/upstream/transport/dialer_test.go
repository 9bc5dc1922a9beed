package transport

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// TestDialTimeoutIncludesNameResolution shows that a dial fails after its timeout if no name server
// answers, although the request has more time.
func TestDialTimeoutIncludesNameResolution(t *testing.T) {
	mute, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	d := newDialer(newAddressTable(func() {}))
	if d.Timeout != dialTimeout {
		t.Errorf("a dial may take %v, want %v", d.Timeout, dialTimeout)
	}
	d.Timeout = 200 * time.Millisecond
	testEnd := t.Context() // ends the look-up too, which goes on after the dial has failed
	d.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		var udpDialer net.Dialer
		c, err := udpDialer.DialContext(testEnd, "udp", mute.LocalAddr().String())
		if err == nil {
			context.AfterFunc(testEnd, func() { c.Close() })
		}
		return c, err
	}}
	began := time.Now()
	conn, err := d.DialContext(t.Context(), "tcp", "apiserver.example.com.:443")
	took := time.Since(began)
	if err == nil {
		conn.Close()
		t.Fatal("connected")
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("the dial failed with %v, want a timeout", err)
	}
	if took < d.Timeout || took > d.Timeout+2*time.Second {
		t.Errorf("the dial failed after %v, want %v", took, d.Timeout)
	}
	if err := mute.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := mute.ReadFrom(make([]byte, 512)); err != nil {
		t.Errorf("the name server received no query: %v", err)
	}
}
