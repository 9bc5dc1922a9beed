package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
	"spillway/internal/passthrough"
	"spillway/internal/source/sourcetest"
)

// slowClientServer is a proxy with nothing in memory, whose clients have little time and little
// room.
type slowClientServer struct {
	heard      receivedRequests
	server     *Server
	plain, tls string // addresses
	trust      *tls.Config
}

func newTurnstile(t *testing.T, allowed clientconn.ReadTimeouts, most int) *slowClientServer {
	t.Helper()
	g := &slowClientServer{}
	upstream := httptest.NewServer(&g.heard)
	base, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := bareTransport()
	forwarder := passthrough.NewForwarder(passthrough.ForwarderOptions{Base: base, Client: all(client), Arrivals: allowed,
		Metrics: passthrough.NewForwardMetrics(nil)})
	g.server = New(Options{Catalog: sourcetest.Resources{}, Forwarder: forwarder, StallTimeout: patience,
		Metrics: NewMetrics(nil), Log: zap.NewNop(), MaxConnections: most})
	g.server.arrivals = allowed
	g.server.conns.AdmitAtOnce()
	secured := &front{}
	served := make(chan error, 2)
	for address, config := range map[*string]*tls.Config{&g.plain: nil, &g.tls: secured.useTLS(true)} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		*address = listener.Addr().String()
		go func() { served <- g.server.Serve(listener, ListenerConfig{TLS: config, AnswerAll: true}) }() // known clients
	}
	g.trust = secured.tls
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = g.server.Close(now) // an error only says that something had to be ended
		<-served
		<-served
		client.CloseIdleConnections()
		upstream.CloseClientConnections()
		upstream.Close()
	})
	return g
}

// dial connects: to the TLS listener with these protocols, or to the plain one without any.
func (g *slowClientServer) dial(t *testing.T, protocols ...string) net.Conn {
	t.Helper()
	address := g.plain
	if protocols != nil {
		address = g.tls
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if protocols == nil {
		return c
	}
	config := g.trust.Clone()
	config.ServerName, config.NextProtos = "example.com", protocols
	secure := tls.Client(c, config)
	if err := secure.Handshake(); err != nil {
		t.Fatal(err)
	}
	return secure
}

// trickle sends bytes one at a time, without end, and returns what was answered once the other end
// has closed.
func trickle(t *testing.T, c net.Conn, endless func(i int) byte) string {
	t.Helper()
	stop := make(chan struct{})
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := 0; ; i++ {
			if _, err := c.Write([]byte{endless(i)}); err != nil {
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	answer, err := io.ReadAll(c)
	close(stop)
	_ = c.Close()
	<-sent
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it was not cut within %v", patience)
	}
	return string(answer)
}

// A client that sends a byte now and then is cut when the time for the whole is over, wherever in a
// connection it is. Single bytes do not count as progress.
func TestSlowSendersAreCut(t *testing.T) {
	allowed := clientconn.ReadTimeouts{Head: 200 * time.Millisecond, Owned: 200 * time.Millisecond,
		Passed: 200 * time.Millisecond}
	always := func(b byte) func(int) byte { return func(int) byte { return b } }
	request := func(head string) string { return "POST /x HTTP/1.1\r\nHost: localhost\r\n" + head + "\r\n" }
	for _, protocols := range [][]string{nil, {"http/1.1"}} {
		name := "plain"
		if protocols != nil {
			name = "TLS"
		}
		for what, begin := range map[string]string{
			"nothing at first": "",
			"a request line":   "GET /",
			"a head":           "GET /x HTTP/1.1\r\nHost: localhost\r\nX: ",
			"a small body":     request("Content-Length: 100000\r\n"),
			"a tiny body":      request("Content-Length: 1000\r\n"),
			"a large body":     request("Content-Length: 100000000\r\n"),
			"a chunk":          request("Transfer-Encoding: chunked\r\n") + "fffff\r\n",
			"the body of an upgrade": "POST /api/v1/namespaces/d/pods/p/exec HTTP/1.1\r\nHost: localhost\r\n" +
				"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
			"a chunk's size":                    request("Transfer-Encoding: chunked\r\n") + "1;",
			"a body that waits to be asked for": request("Content-Length: 100000\r\nExpect: 100-continue\r\n"),
			"the head of a second request":      "GET /first HTTP/1.1\r\nHost: localhost\r\n\r\nGET /x HTTP/1.1\r\nX: ",
			"the small body of a second request": "GET /first HTTP/1.1\r\nHost: localhost\r\n\r\n" +
				request("Content-Length: 100000\r\n"),
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				g := newTurnstile(t, allowed, 0)
				c := g.dial(t, protocols...)
				_, _ = io.WriteString(c, begin) // fails if the client is cut by now, which is as well
				t.Logf("answered %.80q", trickle(t, c, always('a')))
				g.onlyFirst(t)
			})
		}
	}
	t.Run("a handshake", func(t *testing.T) {
		t.Parallel()
		g := newTurnstile(t, allowed, 0)
		c, err := net.Dial("tcp", g.tls)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		record := []byte{22, 3, 1, 0x20, 0, 1, 0, 0x1f, 0xfc, 3, 3} // the beginning of a ClientHello of 8 kB
		trickle(t, c, func(i int) byte {
			if i < len(record) {
				return record[i]
			}
			return 0
		})
	})
}

// onlyFirst fails the test if upstream received any request but the first.
func (g *slowClientServer) onlyFirst(t *testing.T) {
	t.Helper()
	g.heard.mu.Lock()
	defer g.heard.mu.Unlock()
	for _, r := range g.heard.requests {
		if !strings.Contains(r, "/first") {
			t.Errorf("upstream was asked %s", r)
		}
	}
}

// Over HTTP/2 a stream that trickles its body is ended; the others of its connection go on.
func TestSlowBodyHTTP2(t *testing.T) {
	for name, length := range map[string]string{"small": "100000", "large": "100000000", "without length": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newTurnstile(t, clientconn.ReadTimeouts{Head: patience, Owned: 200 * time.Millisecond,
				Passed: 200 * time.Millisecond}, 0)
			c := g.dial(t, "h2")
			if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
				t.Fatal(err)
			}
			framer := http2.NewFramer(c, c)
			if err := framer.WriteSettings(); err != nil {
				t.Fatal(err)
			}
			fields := []string{":method", "POST", ":scheme", "https", ":authority", "localhost", ":path", "/x",
				"authorization", "Bearer token"}
			if length != "" {
				fields = append(fields, "content-length", length)
			}
			writeHead(t, framer, 1, false, fields...)
			_ = c.SetReadDeadline(time.Now().Add(patience))
			ended, first := false, false
			for !ended {
				_ = framer.WriteData(1, false, []byte("a")) // fails when the stream is over, as reading tells
				frame, err := framer.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				switch f := frame.(type) {
				case *http2.RSTStreamFrame:
					ended = f.StreamID == 1
				case *http2.HeadersFrame:
					ended = f.StreamID == 1 && f.StreamEnded()
				case *http2.DataFrame:
					ended = f.StreamID == 1 && f.StreamEnded()
				}
			}
			writeHead(t, framer, 3, true, ":method", "GET", ":scheme", "https", ":authority", "localhost", ":path",
				"/first", "authorization", "Bearer token")
			for !first {
				frame, err := framer.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				first = frame.Header().Type == http2.FrameHeaders && frame.Header().StreamID == 3
			}
			g.onlyFirst(t)
		})
	}
}

func writeHead(t *testing.T, framer *http2.Framer, stream uint32, end bool, fields ...string) {
	t.Helper()
	var block strings.Builder
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		if err := encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte(block.String()),
		EndHeaders: true, EndStream: end}); err != nil {
		t.Fatal(err)
	}
}

// What cannot be read is answered as upstream's server answers it, byte for byte, and nothing else:
// no Server header, no Date.
func TestMisreadRequests(t *testing.T) {
	direct := httptest.NewServer(http.NotFoundHandler())
	defer direct.Close()
	g := newTurnstile(t, clientconn.DefaultReadTimeouts, 0)
	long := strings.Repeat("a", http.DefaultMaxHeaderBytes+8<<10)
	for name, raw := range map[string]string{
		"a header that is too long": "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + long + "\r\n\r\n",
		"a path that is too long":   "GET /" + long + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"no header":                 "GET / HTTP/1.1\r\nHost: localhost\r\nX\r\n\r\n",
		"no request":                "\x00\x01\x02\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			want, _ := converse(t, direct.Listener.Addr().String(), raw, patience)
			got, ended := converse(t, g.plain, raw, patience)
			if got != want || !ended {
				t.Errorf("answered %q, ended %v; upstream's server answers %q", got, ended, want)
			}
			c := g.dial(t, "http/1.1")
			go func() { _, _ = io.WriteString(c, raw) }() // fails if the server has seen enough
			secure, _ := io.ReadAll(c)                    // a reset may follow
			if string(secure) != want {
				t.Errorf("over TLS it is answered %q, want %q", secure, want)
			}
		})
	}
}

// A head that is too large for HTTP/2 is answered 431, too.
func TestLargeHeadHTTP2(t *testing.T) {
	g := newTurnstile(t, clientconn.DefaultReadTimeouts, 0)
	transport := &http.Transport{TLSClientConfig: g.trust.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	ask := func(size int) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+g.tls+"/first", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X", strings.Repeat("a", size))
		response, err := transport.RoundTrip(r)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	if code, err := ask(1000); code != http.StatusOK {
		t.Errorf("a small head: %d, %v", code, err)
	}
	// net/http's client knows from the settings that it is too large, and does not send it.
	if code, err := ask(2 << 20); err == nil && code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a large head: %d", code)
	}
	g.onlyFirst(t)
}

// At the limit a normal client gets through while all other connections are half open, and is
// refused with a 429 while all others are busy.
func TestLimitOfConnections(t *testing.T) {
	const most = 20
	g := newTurnstile(t, clientconn.DefaultReadTimeouts, most)
	for i := range 3 * most {
		if i%2 == 0 {
			g.dial(t) // and nothing more
			continue
		}
		c, err := net.Dial("tcp", g.tls)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	for range 2 * most { // each has a connection of its own, and leaves it open
		for _, protocols := range [][]string{nil, {"http/1.1"}} {
			c := g.dial(t, protocols...)
			expectStatus(t, c, http.StatusOK)
		}
	}
	held := make([]net.Conn, most) // busy: their bodies are on their way, in chunks, which upstream waits for
	for i := range held {
		held[i] = g.dial(t)
		if _, err := io.WriteString(held[i],
			"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"); err != nil {
			t.Fatal(err)
		}
		// so that the next one does not displace it
		for deadline := time.Now().Add(patience); g.busy() <= i; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d are busy, want %d", g.busy(), i+1)
			}
		}
	}
	for _, protocols := range [][]string{nil, {"http/1.1"}} {
		expectStatus(t, g.dial(t, protocols...), http.StatusTooManyRequests)
	}
	transport := &http.Transport{TLSClientConfig: g.trust.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Get("https://" + g.tls + "/first")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusTooManyRequests || response.ProtoMajor != 2 ||
		!spread(response.Header.Get("Retry-After")) {
		t.Errorf("over HTTP/2: %s %v", response.Proto, response.Status)
	}
	_ = held[0].Close()
	for deadline := time.Now().Add(patience); g.busy() == most; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("who left is still counted")
		}
	}
	expectStatus(t, g.dial(t), http.StatusOK)
}

// busy is how many are neither arriving nor resting.
func (g *slowClientServer) busy() int {
	return g.server.conns.ActiveConnections()
}

// expectStatus asks for something on a connection and leaves it open.
func expectStatus(t *testing.T, c net.Conn, want int) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(c, "GET /first HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || response.StatusCode != want {
		t.Fatalf("%s %q, %v; want %d", response.Status, body, err, want)
	}
	if tooMany := want == http.StatusTooManyRequests; tooMany &&
		(string(body) != apistatus.TooManyRequestsText || !spread(response.Header.Get("Retry-After")) || !response.Close) {
		t.Errorf("%v %q", response.Header, body)
	}
}
