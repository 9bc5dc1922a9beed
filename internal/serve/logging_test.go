package serve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What a client sent is in no log line, however it is malformed and whatever the level: there may
// be a token in it.
func TestLogsHaveNoCredentials(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{access: true})
	r.people()
	for i, head := range []string{
		"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hush\r\n broken",
		"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hush\r\nno colon\r\n\r\n",
		"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hush\x01\r\n\r\n",
		"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer hush\r\n\r\n",
		"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nAuthorization Bearer hush: x\r\n\r\n",
		"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: hush\r\n\r\n",
		"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nContent-Length: hush\r\n\r\n",
		"GET /api/v1/pods?token=hush HTTP/9.9\r\nHost: localhost\r\n\r\n",
		"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hush\r\nX: " + strings.Repeat("x", 20<<10) +
			"\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if i%2 == 0 { // the next request after a watch
			watchBriefly(t, conn)
		}
		_, _ = io.WriteString(conn, head)
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
	r.close()
	for _, line := range r.logs.All() {
		if text := fmt.Sprint(line.Message, line.ContextMap()); strings.Contains(text, "hush") {
			t.Errorf("logged: %s", text)
		}
	}
}

// watchBriefly watches until the watch is over and the connection free again.
func watchBriefly(t *testing.T, conn net.Conn) {
	t.Helper()
	_, _ = io.WriteString(conn,
		"GET "+inN+"?watch=1&resourceVersion=0&timeoutSeconds=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+
			"alice\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("a watch ends with %d, %v", answer.StatusCode, err)
	}
}
