package tlsconn

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"spillway/internal/tlsconn/tlsconntest"
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
			below := &meteredConn{Conn: near}
			server := NewSecureConn(below, &below.meter, &tls.Config{Certificates: identity.TLS.Certificates})
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
			held := reflect.ValueOf(server.Conn).Elem().FieldByName("rawInput").FieldByName("buf").Cap()
			t.Logf("%d bytes", held)
			if held > c.held {
				t.Errorf("crypto/tls keeps %d bytes, not %d", held, c.held)
			}
		})
	}
}

// listen is a listener on loopback, and the configuration of a server that asks for certificates.
func listen(t *testing.T) (net.Listener, *tls.Config) {
	t.Helper()
	identity := httptest.NewUnstartedServer(nil)
	identity.StartTLS()
	t.Cleanup(identity.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln, &tls.Config{Certificates: identity.TLS.Certificates, ClientAuth: tls.RequestClientCert,
		VerifyConnection: CheckCertificates}
}

// ends is why the server's side of a connection ends that reads and discards.
func ends(ln net.Listener, config *tls.Config) <-chan error {
	why := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			why <- err
			return
		}
		defer c.Close()
		below := &meteredConn{Conn: c}
		server := NewSecureConn(below, &below.meter, config)
		_, err = io.Copy(io.Discard, server)
		why <- err
	}()
	return why
}

// A handshake message that never ends is cut, after the handshake as in it.
func TestUnfinishedMessagesAreCut(t *testing.T) {
	t.Parallel()
	ln, config := listen(t)
	why := ends(ln, config)
	client, err := tlsconntest.Dial(t, ln.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = client.SendUnfinished(256 << 10) // fails when it is cut
	if err := <-why; !errors.Is(err, ErrTooSilent) {
		t.Errorf("it ended with %v", err)
	}
	for _, c := range []struct {
		name string
		cert tls.Certificate
		want string // in the error; empty: ErrHandshakeTooLong
	}{
		{"80,000 extended key usages", tlsconntest.Certificate(t, tlsconntest.Usages(80_000)), ""},
		{"3,500 of them", tlsconntest.Certificate(t, tlsconntest.Usages(3500)), "bytes decoded"},
		{"a long name", tlsconntest.Certificate(t, func(c *x509.Certificate) {
			c.DNSNames = []string{strings.Repeat("a", 20<<10)}
		}), "send at most 16384"},
	} {
		why := ends(ln, config)
		if client, err := tlsconntest.Dial(t, ln.Addr().String(), nil, c.cert); err == nil {
			_, _ = client.Read(make([]byte, 1)) // the end, or the tickets before it
		}
		err := <-why
		if c.want == "" && !errors.Is(err, ErrHandshakeTooLong) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: it ended with %v", c.name, err)
		}
	}
}

// Records without plaintext are few in a row, and any number of them among plaintext.
func TestSilentRecordsAmongPlaintext(t *testing.T) {
	t.Parallel()
	ln, config := listen(t)
	why := ends(ln, config)
	client, err := tlsconntest.Dial(t, ln.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 * SilentBytesLimit / 25 {
		for _, content := range [][]byte{{}, {1}} {
			if err := client.Send(tlsconntest.RecordApplicationData, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := client.Send(tlsconntest.RecordApplicationData, make([]byte, 16<<10)); err != nil {
		t.Fatal(err)
	}
	_ = client.Conn.(*net.TCPConn).CloseWrite()
	if err := <-why; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// Ten ordinary certificates are taken, and resumed.
func TestOrdinaryChainsAreTaken(t *testing.T) {
	t.Parallel()
	ln, config := listen(t)
	cert := tlsconntest.Certificate(t)
	for len(cert.Certificate) < CertificatesLimit {
		cert.Certificate = append(cert.Certificate, tlsconntest.Certificate(t).Certificate...)
	}
	handshake := func(cert tls.Certificate, cache tls.ClientSessionCache) (tls.ConnectionState, error) {
		why := ends(ln, config)
		client, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{InsecureSkipVerify: true, ServerName: "a",
			Certificates: []tls.Certificate{cert}, ClientSessionCache: cache}) //nolint:gosec // a throw-away certificate
		if err != nil {
			t.Fatal(err)
		}
		_, _ = client.Write([]byte("x"))
		_ = client.CloseWrite()
		_, _ = io.Copy(io.Discard, client) // tickets
		defer client.Close()
		return client.ConnectionState(), <-why
	}
	cache := tls.NewLRUClientSessionCache(1)
	if _, err := handshake(cert, cache); err != nil {
		t.Fatal(err)
	}
	if state, err := handshake(cert, cache); err != nil || !state.DidResume {
		t.Errorf("resumed: %v, %v", state.DidResume, err)
	}
	cert.Certificate = append(cert.Certificate, cert.Certificate[0])
	if _, err := handshake(cert, nil); err == nil {
		t.Errorf("%d certificates are taken", len(cert.Certificate))
	}
}

// What a certificate takes decoded is known well enough: no kind of content takes more than is
// counted.
func TestDecodedBytesAreCounted(t *testing.T) {
	for name, dense := range tlsconntest.Dense {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{0, 100, 1500} {
				der := tlsconntest.Certificate(t, dense(n)).Certificate[0]
				const copies = 50
				all := make([]*x509.Certificate, copies)
				before := inUse()
				for i := range all {
					var err error
					if all[i], err = x509.ParseCertificate(der); err != nil {
						t.Fatal(err)
					}
				}
				took := (inUse() - before) / copies
				counted := decodedBytes(all[0])
				t.Logf("%d: %d bytes of DER take %d, counted %d", n, len(der), took, counted)
				if took > counted || n > 0 && counted > 4*took+certificateCost {
					t.Errorf("%d: %d bytes of DER take %d, counted %d", n, len(der), took, counted)
				}
				runtime.KeepAlive(all)
			}
		})
	}
}

// inUse is how many bytes of the heap are in use.
func inUse() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc) // #nosec G115 -- a test's
}

// However records arrive, the Meter is where it would be had they arrived at once, and no read goes
// beyond the end of a record that is longer than what is read ahead.
func FuzzMeter(f *testing.F) {
	f.Add([]byte{22, 3, 1, 0, 2, 1, 2, 23, 3, 3, 0, 0}, []byte{1, 2, 200})
	f.Add(tlsconntest.UnfinishedHello(4<<10), []byte{255})
	f.Fuzz(func(t *testing.T, sent, sizes []byte) {
		var whole, pieces Meter
		wholeErr := whole.CountRead(sent)
		var err error
		buffer := make([]byte, 20<<10)
		for i, left := 0, sent; len(left) > 0 && err == nil; i++ {
			size := len(buffer)
			if len(sizes) > 0 {
				size = 1 + 80*int(sizes[i%len(sizes)])
			}
			room := pieces.LimitRead(buffer[:size])
			if len(room) == 0 {
				t.Fatal("there is no room for a byte")
			}
			if ahead := max(recordsAheadBytes, int(pieces.payloadLeft)); len(room) > ahead {
				t.Fatalf("%d bytes are read, %d are left of the record", len(room), pieces.payloadLeft)
			}
			n := copy(room, left)
			err, left = pieces.CountRead(room[:n]), left[n:]
		}
		if (err == nil) != (wholeErr == nil) || err == nil && pieces != whole {
			t.Fatalf("in pieces %+v, %v; at once %+v, %v", pieces, err, whole, wholeErr)
		}
	})
}
