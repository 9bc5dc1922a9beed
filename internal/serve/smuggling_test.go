package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"spillway/internal/passthrough"
	"spillway/internal/source/sourcetest"
)

// framings are requests whose ends can be seen in more than one place, or that are no requests.
// refused says that this proxy is to answer 400 to them and close, and upstream to get nothing;
// others may be understood, but only as upstream itself would.
var framings = []struct {
	name, raw string
	refused   bool
}{
	{"plain", "GET /x HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"a body", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", false},
	{"chunks", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", false},
	{"a chunk's extension", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n0\r\n\r\n",
		false},
	{"a chunk's extension in quotes",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;a=\"\r\nhi\r\n0\r\n\r\n", false},
	{"a line feed in an extension",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;a\nhi\r\n0\r\n\r\n", false},
	{"a carriage return in an extension",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;a\rb\r\nhi\r\n0\r\n\r\n", false},
	{"a trailer", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: " +
		"Authorization\r\n\r\n2\r\nhi\r\n0\r\nAuthorization: Bearer t\r\n\r\n", false},
	{"a chunk that is signed", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n+2\r\nhi\r\n0\r\n\r\n",
		false},
	{"a chunk that is negative", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nhi\r\n0\r\n\r\n",
		false},
	{"a chunk in C's way", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n",
		false},
	{"a chunk without size", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhi\r\n0\r\n\r\n",
		false},
	{"a chunk of 2^64+2", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: " +
		"chunked\r\n\r\n10000000000000002\r\nhi\r\n0\r\n\r\n", false},
	{"a chunk with zeros", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: " +
		"chunked\r\n\r\n0000000000000000002\r\nhi\r\n0\r\n\r\n", false},
	{"a chunk longer than it says",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi!\r\n0\r\n\r\n", false},
	{"a chunk with blanks", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n 2 \r\nhi\r\n0\r\n\r\n",
		false},
	{"chunks with line feeds alone", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\nhi\n0\n\n",
		false},
	{"line feeds alone", "GET /x HTTP/1.1\nHost: a\n\n", false},
	{"a carriage return alone", "GET /x HTTP/1.1\rHost: a\r\r\n\r\n", true},
	{"a carriage return in a value", "GET /x HTTP/1.1\r\nHost: a\r\nX: 1\rAuthorization: Bearer x\r\n\r\n", true},
	{"a null in a value", "GET /x HTTP/1.1\r\nHost: a\r\nX: 1\x002\r\n\r\n", true},
	{"a null in a name", "GET /x HTTP/1.1\r\nHost: a\r\nX\x00: 1\r\n\r\n", true},
	{"a fold", "GET /x HTTP/1.1\r\nHost: a\r\nX: 1\r\n Authorization: Bearer x\r\n\r\n", false},
	{"a fold of Content-Length", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n 2\r\n\r\nhi", false},
	{"a fold of Transfer-Encoding",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", false},
	{"a fold before any header", "GET /x HTTP/1.1\r\n Host: a\r\nHost: b\r\n\r\n", true},
	{"a length and chunks", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: " +
		"chunked\r\n\r\n0\r\n\r\n", true},
	{"chunks and a length", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: " +
		"5\r\n\r\n0\r\n\r\n", true},
	{"a length in two headers", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", true},
	{"two lengths", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 0\r\n\r\nhi", true},
	{"a list of lengths", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2, 2\r\n\r\nhi", true},
	{"a signed length", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: +2\r\n\r\nhi", true},
	{"a negative length", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: -2\r\n\r\nhi", true},
	{"a length in C's way", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0x2\r\n\r\nhi", true},
	{"a length of 2^64+2", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551618\r\n\r\nhi", true},
	{"a length of nothing", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", true},
	{"a length with a tab", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length:\t2\r\n\r\nhi", false},
	{"a length with a form feed", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: \f2\r\n\r\nhi", true},
	{"a length, named with a blank", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length : 2\r\n\r\nhi", true},
	{"a length, named with an underscore",
		"POST /x HTTP/1.1\r\nHost: a\r\nContent_Length: 0\r\nContent-Length: 2\r\n\r\nhi", false},
	{"a length with HTTP/1.0", "POST /x HTTP/1.0\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", false},
	{"chunks with HTTP/1.0", "POST /x HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		false},
	{"an unknown coding", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", true},
	{"two codings", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", true},
	{"two codings in two headers",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", true},
	{"a coding twice", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: " +
		"chunked\r\n\r\n0\r\n\r\n", true},
	{"a coding in capitals", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		false},
	{"a coding with a vertical tab", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n", true},
	{"a coding in quotes", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", true},
	{"a coding of nothing", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", true},
	{"identity", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nhi", true},
	{"identity without a length", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", true},
	{"a GET with chunks", "GET /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", false},
	{"a GET with a body", "GET /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", false},
	{"a HEAD with a body", "HEAD /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", false},
	{"an upgrade with a body",
		"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\nTransfer-Encoding: chunked\r\nContent-Length: " +
			"5\r\n\r\n0\r\n\r\n", true},
	{"HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", true},
	{"an upgrade to HTTP/2",
		"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: " +
			"AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n", false},
	{"another version", "GET /x HTTP/1.2\r\nHost: a\r\n\r\n", true},
	{"no version", "GET /x\r\nHost: a\r\n\r\n", true},
	{"two hosts", "GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", false},
	{"a host that is none", "GET /x HTTP/1.1\r\nHost: a\"b\r\n\r\n", true},
	{"no host", "GET /x HTTP/1.1\r\n\r\n", false},
	{"absolute form", "GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"asterisk", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"CONNECT", "CONNECT /x HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"a blank in a path", "GET /x y HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"a tab in a path", "GET /x\ty HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"a bad escape", "GET /x%zz HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"a method that is none", "G{T /x HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"empty lines before", "\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"a header with a blank in its name", "GET /x HTTP/1.1\r\nHost: a\r\nX Y: 2\r\n\r\n", true},
	{"a header without colon", "GET /x HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", true},
	{"a coding, named with a blank",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", true},
	{"a coding, named with an underscore",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer_Encoding: chunked\r\nContent-Length: 2\r\n\r\nhi", false},
	{"a coding and a comma", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked,\r\n\r\n0\r\n\r\n", true},
	{"a coding that is hop by hop",
		"POST /x HTTP/1.1\r\nHost: a\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", false},
	{"a length that is hop by hop",
		"POST /x HTTP/1.1\r\nHost: a\r\nConnection: Content-Length\r\nContent-Length: 2\r\n\r\nhi", false},
	{"a length in a trailer",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nContent-Length: 60\r\n\r\n", false},
	{"a coding in a trailer",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
		false},
	{"a fold in a trailer", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: 1\r\n " +
		"Authorization: Bearer t\r\n\r\n", false},
	{"a trailer that does not end",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: 1\r\n", false},
	{"a chunk with an underscore",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0_2\r\nhi\r\n0\r\n\r\n", false},
	{"a chunk that ends with a line feed",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\n0\r\n\r\n", false},
	{"a chunk that ends with a carriage return",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r0\r\n\r\n", false},
	{"a long extension", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;" +
		strings.Repeat("a", 5000) + "\r\nhi\r\n0\r\n\r\n", false},
	{"an upgrade with a length",
		"POST /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\nhi", false},
	{"an upgrade with chunks",
		"POST /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", false},
	{"a watch with a body", "GET /x?watch=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", false},
	{"an expectation without a body", "POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", false},
	{"an expectation with a body", "POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
		false},
	{"a host of somebody", "GET /x HTTP/1.1\r\nHost: user@a\r\n\r\n", true},
	{"a header without name", "GET /x HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", true},
}

// smuggled is what follows on the connection. Whether it is a request must not be up to the input
// in front of it.
const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

// TestFramingIsReadAsTheAPIServerReadsIt sends each framing, and a request after it, to upstream's
// HTTP server directly and through the proxy. The requests that upstream receives through the proxy
// must be a prefix, possibly empty, of those that it receives directly.
func TestFramingIsReadAsTheAPIServerReadsIt(t *testing.T) {
	for _, f := range framings {
		t.Run(f.name, func(t *testing.T) {
			through, answer := throughProxy(t, f.raw+smuggled, patience)
			directly, ended := askDirectly(t, f.raw+smuggled, patience)
			if !ended {
				t.Fatal("upstream itself waits for more")
			}
			t.Logf("%q\nis answered %.60q; upstream is asked %q, directly %q", f.raw, answer, through, directly)
			if !begins(directly, through) {
				t.Error("upstream is asked what it is not asked directly")
			}
			if strings.HasPrefix(answer, "HTTP/1.1 5") {
				t.Error("upstream is blamed for it")
			}
			if refusal := strings.HasPrefix(answer, "HTTP/1.1 400 "); f.refused && (!refusal || len(through) > 0) {
				t.Error("it was not refused")
			}
		})
	}
}

// FuzzSmuggling looks for other bytes of which that is not true.
func FuzzSmuggling(f *testing.F) {
	for _, one := range framings {
		f.Add(one.raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if len(raw) > 4<<10 {
			return
		}
		directly, ended := askDirectly(t, raw+smuggled, fuzzPatience)
		if !ended { // it waits for more than there is
			return
		}
		if through, _ := throughProxy(t, raw+smuggled, fuzzPatience); !begins(directly, through) {
			t.Errorf("upstream is asked\n%q, directly\n%q", through, directly)
		}
	})
}

func begins(all, first []string) bool {
	return len(first) <= len(all) && slices.Equal(all[:len(first)], first)
}

// receivedRequests records the requests that a server receives, as far as a proxy must leave them
// as they are.
type receivedRequests struct {
	mu       sync.Mutex
	requests []string
}

func (a *receivedRequests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = []byte("(broken)")
	}
	one := fmt.Sprintf("%s %s %q %q %s", r.Method, passthrough.VisibleTarget(r.RequestURI), r.Header["Authorization"],
		r.Trailer["Authorization"], body)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil { // half a body makes no request
		a.requests = append(a.requests, one)
	}
}

// askDirectly sends bytes to upstream's server, without empty lines in front of them: it refuses
// those, and they are to be ignored (RFC 9112, section 2.2). It reports false for ended if that
// does not close the connection.
func askDirectly(t *testing.T, raw string, silence time.Duration) (requests []string, ended bool) {
	t.Helper()
	var a receivedRequests
	s := httptest.NewServer(&a)
	_, ended = converse(t, s.Listener.Addr().String(), strings.TrimLeft(raw, "\r\n"), silence)
	s.CloseClientConnections()
	s.Close()
	return a.requests, ended
}

// throughProxy sends bytes to a proxy with nothing in memory. It returns the requests that upstream
// receives, and the answer.
func throughProxy(t *testing.T, raw string, silence time.Duration) (requests []string, answer string) {
	t.Helper()
	var a receivedRequests
	upstream := httptest.NewServer(&a)
	base, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := bareTransport()
	forwarder := passthrough.NewForwarder(passthrough.ForwarderOptions{Base: base, Client: all(client),
		Metrics: passthrough.NewForwardMetrics(nil)})
	server := New(Options{Catalog: sourcetest.Resources{}, Forwarder: forwarder, StallTimeout: patience,
		Metrics: NewMetrics(nil), Log: zap.NewNop()})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener, ListenerConfig{}) }()
	answer, _ = converse(t, listener.Addr().String(), raw, silence)
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = server.Close(now) // an error only says that something had to be ended
	<-served
	_ = forwarder.Close(now)
	client.CloseIdleConnections()
	upstream.CloseClientConnections()
	upstream.Close() // waits for its handlers
	return a.requests, answer
}

// fuzzPatience is how long a server may be silent before a fuzzer takes it for waiting. An input
// for which that is wrong is not compared.
const fuzzPatience = 200 * time.Millisecond

// converse sends bytes and returns what is answered until the server is silent for so long, and
// whether it closed the connection.
func converse(t *testing.T, addr, raw string, silence time.Duration) (answer string, ended bool) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() { _, _ = io.WriteString(c, raw) }() // fails if the server has seen enough
	var all strings.Builder
	r := bufio.NewReader(c)
	for {
		_ = c.SetReadDeadline(time.Now().Add(silence))
		b, err := r.ReadByte()
		switch {
		case err == nil:
			all.WriteByte(b)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return all.String(), false
		default:
			return all.String(), true
		}
	}
}
