package tlsconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/tlsconn/tlsconntest"
)

// lines are what a server logs.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// serve is a net/http server with TLS that says which certificates its client has sent.
func serve(t *testing.T, handshake time.Duration) (address string, logged *lines) {
	t.Helper()
	ln, config := listen(t)
	logged = &lines{}
	server := &http.Server{
		TLSConfig: config, ReadHeaderTimeout: handshake, ErrorLog: log.New(logged, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%d certificates, %d bytes, %v", len(r.TLS.PeerCertificates), n, err)
		}),
	}
	done := make(chan error, 1)
	go func() { done <- Serve(server, ln) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return ln.Addr().String(), logged
}

// A net/http server knows its client's certificates, and takes bodies of any length.
func TestServedConnections(t *testing.T) {
	t.Parallel()
	address, _ := serve(t, time.Minute)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
		Certificates: []tls.Certificate{tlsconntest.Certificate(t)}}} //nolint:gosec // a throw-away certificate
	defer transport.CloseIdleConnections()
	for range 2 {
		response, err := (&http.Client{Transport: transport}).Post("https://"+address, "",
			strings.NewReader(strings.Repeat("a", 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if got := string(body); got != "1 certificates, 1048576 bytes, <nil>" {
			t.Errorf("got %q", got)
		}
	}
}

// A handshake that fails, or does not come, ends the connection, and the log says so.
func TestServedHandshakesFail(t *testing.T) {
	t.Parallel()
	address, logged := serve(t, 100*time.Millisecond)
	for _, c := range []struct {
		name, sent, answer, log string
	}{
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", notTLSMessage, "client sent an HTTP request to an HTTPS server"},
		{"silence", "", "", "i/o timeout"},
		{"a long one", string(tlsconntest.UnfinishedHello(2 * HandshakeBytesLimit)), "", ErrHandshakeTooLong.Error()},
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, c.sent) // fails if it is cut
		answer, _ := io.ReadAll(conn)       // an alert, or a reset where bytes are unread
		if !strings.HasPrefix(string(answer), c.answer) || !strings.Contains(logged.String(), c.log) {
			t.Errorf("%s: answered %q, logged %s", c.name, answer, logged)
		}
		_ = conn.Close()
	}
}
