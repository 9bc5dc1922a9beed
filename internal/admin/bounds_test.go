package admin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"spillway/internal/health"
	"spillway/internal/listen"
	"spillway/internal/testutil"
	"spillway/internal/tlsconn/tlsconntest"
)

// serveOperators serves a handler as the metrics listener is served, and returns its address and
// how many connections are open.
func serveOperators(t *testing.T, o *Endpoints) (addr string, bounded func() (open int)) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	counted := &countedListener{Listener: listener}
	done := make(chan error, 1)
	go func() { done <- o.Serve(ctx, counted) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String(), counted.count
}

// countedListener knows how many of its connections are open, and how many there were.
type countedListener struct {
	net.Listener
	mu         sync.Mutex
	open, ever int
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.add(1)
		c = &countedConn{Conn: c, closed: sync.OnceFunc(func() { l.add(-1) })}
	}
	return c, err
}

func (l *countedListener) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open += n
	l.ever += max(n, 0)
}

func (l *countedListener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// Clients that never end their heads hold few connections and little memory, and keep no probe out.
func TestUnfinishedHeadsHoldLittle(t *testing.T) {
	addr, open := serveOperators(t, &Endpoints{Health: &health.Checks{}, Registry: NewRegistry(), Log: zap.NewNop()})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const clients = 1000
	head := "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 15<<10)
	conns := make([]net.Conn, 0, clients)
	for range clients {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, head) // fails if it has been displaced already
		conns = append(conns, c)
	}
	for _, c := range conns[:clients-connectionsLimit] { // each of these has been ended for a later one
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("an old connection was not ended: %v", err)
		}
	}
	if n := open(); n > connectionsLimit {
		t.Errorf("%d connections are open", n)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 16<<20 {
		t.Errorf("%d connections hold %d bytes", open(), grown)
	} else {
		t.Logf("%d connections hold %d bytes", open(), grown)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + addr + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.StatusCode != 200 || string(body) != "ok" {
		t.Errorf("a probe got %d %q", response.StatusCode, body)
	}
}

func TestLargeHeadsAreRefused(t *testing.T) {
	addr, _ := serveOperators(t, &Endpoints{Health: &health.Checks{}, Registry: NewRegistry(), Log: zap.NewNop()})
	for size, want := range map[int]int{15 << 10: 200, 21 << 10: 431, 1 << 20: 431} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		wrote := make(chan struct{})
		go func() {
			defer close(wrote)
			// fails if it is refused before its end
			_, _ = fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: %s\r\n\r\n",
				strings.Repeat("a", size))
		}()
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		body, _ := io.ReadAll(response.Body)
		if response.StatusCode != want || want == 431 && string(body) != "431 Request Header Fields Too Large" {
			t.Errorf("%d bytes: %d %q, want %d", size, response.StatusCode, body, want)
		}
		<-wrote
	}
}

// HTTP/2 is offered neither in the handshake nor without it.
func TestOperatorsSpeakHTTP1(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	secure := &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
	each := secure.Clone() // as where clients may send certificates
	secure.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return each, nil }
	secure = listen.Speaking(secure, "http/1.1")
	addr, _ := serveOperators(t, &Endpoints{Health: &health.Checks{}, Registry: NewRegistry(), TLS: secure,
		Log: zap.NewNop()})
	trusting := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusting.NextProtos = []string{"h2", "http/1.1"}
	c, err := tls.Dial("tcp", addr, trusting)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if p := c.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
		t.Errorf("negotiated %q", p)
	}
	plain, _ := serveOperators(t, &Endpoints{Health: &health.Checks{}, Registry: NewRegistry(), Log: zap.NewNop()})
	p, err := net.Dial("tcp", plain)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, _ = io.WriteString(p, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	answer, _ := io.ReadAll(p)
	if !bytes.HasPrefix(answer, []byte("HTTP/1.1 ")) || bytes.HasPrefix(answer, []byte("HTTP/1.1 2")) {
		t.Errorf("HTTP/2 without TLS was answered %q", answer)
	}
}

// A client that sends a TLS message without an end is cut.
func TestOperatorsMustSendPlaintext(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	addr, open := serveOperators(t, &Endpoints{Health: &health.Checks{}, Registry: NewRegistry(),
		TLS: &tls.Config{Certificates: s.TLS.Certificates}, Log: zap.NewNop()})
	c, err := tlsconntest.Dial(t, addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SendUnfinished(256 << 10) // fails when it is cut
	_, _ = io.Copy(io.Discard, c)   // session tickets, until then
	if n := open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}

// A connection has the time of SECURITY.md for each of its phases.
func TestOperatorsHaveLimitedTime(t *testing.T) {
	const get = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, c := range map[string]struct {
		sent    string
		answers int // that are taken
		ends    time.Duration
	}{
		"nothing is sent":       {"", 0, 10 * time.Second},
		"a head without an end": {"GET /livez HTTP/1.1\r\n", 0, 10 * time.Second},
		"a body without an end": {"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", 1,
			10 * time.Second},
		"an answer is not taken":    {get, 0, 30 * time.Second},
		"idle between two requests": {get, 1, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := testutil.NewPipeListener()
				o := &Endpoints{Health: &health.Checks{}, Registry: NewRegistry(), Log: zap.NewNop()}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- o.Serve(ctx, listener) }()
				conn := listener.Dial()
				began := time.Now()
				if _, err := io.WriteString(conn, c.sent); err != nil {
					t.Fatal(err)
				}
				read := bufio.NewReader(conn)
				for range c.answers {
					response, err := http.ReadResponse(read, nil)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, response.Body)
				}
				time.Sleep(c.ends - time.Since(began) - time.Millisecond)
				if listener.HasClosed() {
					t.Errorf("it was ended within %v", c.ends)
				}
				time.Sleep(2 * time.Millisecond)
				if !listener.HasClosed() {
					t.Errorf("it was not ended after %v", c.ends)
				}
				_ = conn.Close()
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAtMost(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	handler := atMost(2, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	}))
	var answered sync.WaitGroup
	for range 2 {
		answered.Go(func() { get(handler, "/") })
		<-entered
	}
	if code, body := get(handler, "/"); code != 503 || !strings.Contains(body, "try again") {
		t.Errorf("%d %s", code, body)
	}
	close(leave)
	answered.Wait()
	go func() { <-entered }()
	if code, _ := get(handler, "/"); code != 200 {
		t.Errorf("%d afterwards", code)
	}
}
