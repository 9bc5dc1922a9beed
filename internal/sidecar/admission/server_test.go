package admission

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The server speaks HTTP/1.1 alone, refuses large heads, and lets silent connections go for new
// ones.
func TestServerIsBounded(t *testing.T) {
	plain := httptest.NewUnstartedServer(nil)
	server := NewServer(newHandler(), &tls.Config{MinVersion: tls.VersionTLS12}, zap.NewNop())
	plain.Config = server
	plain.TLS = server.TLSConfig
	plain.EnableHTTP2 = false
	plain.StartTLS()
	defer plain.Close()
	dial := func(protocols ...string) *tls.Conn {
		t.Helper()
		conn, err := tls.Dial("tcp", plain.Listener.Addr().String(),
			&tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	if protocol := dial("h2", "http/1.1").ConnectionState().NegotiatedProtocol; protocol != "http/1.1" {
		t.Errorf("it speaks %s", protocol)
	}
	conn := dial()
	_, _ = io.WriteString(conn, "POST /inject HTTP/1.1\r\nHost: a\r\nA: "+strings.Repeat("a",
		httpHeadLimitBytes+8<<10)+"\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a large head: %v %v", answer, err)
	}
	silent := dial()
	for range connectionLimit + 1 {
		dial()
	}
	if n, err := silent.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes of a silent connection", n)
	}
	answer, err = plain.Client().Post(plain.URL+"/inject", "application/json", strings.NewReader(reviewOf(pod, "")))
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", answer, err)
	}
	_ = answer.Body.Close()
}
