package admission

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeConn knows whether it is closed.
type fakeConn struct {
	net.Conn
	name   string
	closed bool
}

func (c *fakeConn) Close() error {
	c.closed = true
	return nil
}

// At the limit, the connection that has been kept open longest without a complete request makes
// room: those that have been answered last, and those with a complete request never.
func TestConnectionsMakeRoom(t *testing.T) {
	c := newConnections(3)
	all := map[string]*fakeConn{}
	open := func(name string) { all[name] = &fakeConn{name: name}; c.changed(all[name], http.StateNew) }
	closed := func(want string) {
		t.Helper()
		var got []string
		for _, name := range []string{"idle", "served", "slow", "4", "5", "6", "7"} {
			if conn := all[name]; conn != nil && conn.closed {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("closed are %q, want %q", got, want)
		}
	}
	open("idle")
	c.changed(all["idle"], http.StateActive)
	c.changed(all["idle"], http.StateIdle)
	open("served")
	c.changed(all["served"], http.StateActive)
	complete(c.context(t.Context(), all["served"]))
	open("slow")
	c.changed(all["slow"], http.StateActive)
	closed("")
	open("4")
	closed("slow")
	c.changed(all["slow"], http.StateClosed)
	open("5")
	closed("slow 4")
	c.changed(all["5"], http.StateActive)
	complete(c.context(t.Context(), all["5"]))
	open("6")
	closed("idle slow 4")
	complete(c.context(t.Context(), all["6"]))
	open("7") // there is no room for it
	closed("idle slow 4 7")
	c.changed(all["7"], http.StateClosed)
	c.changed(all["served"], http.StateIdle)
	open("8")
	closed("idle served slow 4 7")
	for _, conn := range all {
		c.changed(conn, http.StateClosed)
	}
	if len(c.all)+c.incomplete.Len()+c.quiet.Len() != 0 {
		t.Errorf("there remain %v", c.all)
	}
}

// The server speaks HTTP/1.1 alone, refuses large heads, and lets silent connections go for new
// ones.
func TestServerIsBounded(t *testing.T) {
	plain := httptest.NewUnstartedServer(nil)
	server := Server(newHandler(), &tls.Config{MinVersion: tls.VersionTLS12}, zap.NewNop())
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
		headLimitBytes+8<<10)+"\r\n\r\n")
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
