package clientconn

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"reflect"
	"testing"
)

// TestTLSBuffersStaySmall holds that crypto/tls keeps a buffer of one record for a client that
// sends long ones without a pause, of whatever lengths, and that all bytes arrive.
func TestTLSBuffersStaySmall(t *testing.T) {
	t.Parallel()
	identity := httptest.NewUnstartedServer(nil)
	identity.StartTLS()
	defer identity.Close()
	const most = 16 << 10
	for name, c := range map[string]struct {
		lengths []int
		held    int // bytes
	}{
		"long ones":                          {[]int{most}, 20 << 10},
		"short ones before long ones":        {[]int{1, 100, 700, most}, 20 << 10},
		"one that leaves its buffer too low": {[]int{14_500, most, most - 1, 3}, 33 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			far, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			near, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer near.Close()
			server := tls.Server(&PacedConn{Conn: near, tls: true}, &tls.Config{Certificates: identity.TLS.Certificates})
			config := &tls.Config{InsecureSkipVerify: true,
				DynamicRecordSizingDisabled: true} //nolint:gosec // a throw-away certificate
			client := tls.Client(far, config)
			var sent []byte
			for len(sent) < 4<<20 {
				for i, n := range c.lengths {
					sent = append(sent, bytes.Repeat([]byte{byte('a' + i)}, n)...)
				}
			}
			go func() {
				for rest := sent; len(rest) > 0; {
					for _, n := range c.lengths {
						if _, err := client.Write(rest[:n]); err != nil {
							return // the server says what is missing
						}
						rest = rest[n:]
					}
				}
			}()
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, sent) {
				t.Fatalf("%v; as sent: %v", err, bytes.Equal(got, sent))
			}
			held := reflect.ValueOf(server).Elem().FieldByName("rawInput").FieldByName("buf").Cap()
			t.Logf("%d bytes", held)
			if held > c.held {
				t.Errorf("crypto/tls keeps %d bytes, not %d", held, c.held)
			}
		})
	}
}
