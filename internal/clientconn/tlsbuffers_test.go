package clientconn

import (
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"reflect"
	"testing"
)

// TestTLSBuffers holds that what a handshake and a request needed is let go of, that nothing unread
// is, and that the connection goes on. Where it fails because another version of Go keeps its
// buffers elsewhere, nothing is wrong but the memory of idle watches.
func TestTLSBuffers(t *testing.T) {
	if !buffersOfTLS.known {
		t.Fatal("the buffers of crypto/tls are not where they are looked for")
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	identity := httptest.NewUnstartedServer(nil)
	identity.StartTLS()
	defer identity.Close()
	server := tls.Server(near, &tls.Config{Certificates: identity.TLS.Certificates})
	client := tls.Client(far, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a throw-away certificate
	go func() {
		_, _ = client.Write([]byte("a request"))
		_, _ = io.Copy(client, client) // says what it hears
	}()
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(server, got); err != nil || string(got) != want {
			t.Fatalf("read %q, %v; want %q", got, err, want)
		}
	}
	held := func() (n int64) {
		v := reflect.ValueOf(server).Elem()
		return int64(v.FieldByName("rawInput").FieldByName("buf").Cap() + v.FieldByName("hand").FieldByName("buf").Cap() +
			v.FieldByName("input").FieldByName("s").Cap())
	}

	expect("a req")
	buffersOfTLS.drop(server)
	expect("uest") // was in a buffer
	if held() < 2<<10 {
		t.Errorf("crypto/tls holds %d bytes after a handshake: there is nothing to let go of any more", held())
	}
	for range 2 {
		buffersOfTLS.drop(server)
		if held() > 0 {
			t.Errorf("%d bytes are still held", held())
		}
		if _, err := server.Write([]byte("and another")); err != nil {
			t.Fatal(err)
		}
		expect("and another")
	}
}
