package serve

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"spillway/internal/flowcontrol"
	"spillway/internal/http1"
	"spillway/internal/passthrough"
	"spillway/internal/source/sourcetest"
)

// sizeRecorder is a server in front of an upstream that says how large what it got is.
type sizeRecorder struct {
	*slowClientServer
	limiter *flowcontrol.Limiter
}

func newMouth(t *testing.T, bytes int64, upstream http.HandlerFunc) *sizeRecorder {
	t.Helper()
	limiter := flowcontrol.NewLimiter(flowcontrol.Limits{HeaderBytes: bytes}, flowcontrol.DefaultQueue, nil)
	m := &sizeRecorder{slowClientServer: &slowClientServer{}, limiter: limiter}
	up := httptest.NewServer(upstream)
	base, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := bareTransport()
	forwarder := passthrough.NewForwarder(passthrough.ForwarderOptions{Base: base, Client: all(client),
		Limiter: m.limiter})
	m.server = New(Options{Catalog: sourcetest.Resources{}, Forwarder: forwarder, StallTimeout: patience,
		Limiter: m.limiter,
		Metrics: NewMetrics(nil), Log: zap.NewNop()})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.plain = listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- m.server.Serve(listener, ListenerConfig{}) }()
	t.Cleanup(func() {
		_ = m.server.Close(t.Context()) // an error only says that something had to be ended
		<-served
		client.CloseIdleConnections()
		up.CloseClientConnections()
		up.Close()
	})
	return m
}

// measuring answers with what there is of a request.
func measuring(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body)
	fmt.Fprintf(w, "cookie %d query %d body %d", len(r.Header.Get("Cookie")), len(r.URL.RawQuery), n)
}

// answersOf sends requests on one connection, each when the one before is answered, and returns the
// answers' codes and bodies.
func answersOf(t *testing.T, address string, requests ...string) (got []string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	r := bufio.NewReader(c)
	for i, request := range requests {
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			return append(got, err.Error())
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		got = append(got, fmt.Sprint(response.StatusCode, " ", string(body)))
	}
	return got
}

func cookieOf(n int) string {
	return "GET /x HTTP/1.1\r\nHost: localhost\r\nCookie: " + strings.Repeat("a", n) + "\r\n\r\n"
}

// eventuallyFree waits until no large head holds anything.
func (m *sizeRecorder) eventuallyFree(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); m.limiter.HeaderBudget().HeldBytes() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are still held", m.limiter.HeaderBudget().HeldBytes())
		}
	}
}

func TestHeadsUpToUpstreamsLimitPassOverHTTP1(t *testing.T) {
	m := newMouth(t, 64<<20, measuring)
	const overhead = len("GET /x HTTP/1.1\r\nHost: localhost\r\nCookie: \r\n\r\n")
	for _, n := range []int{10, http1.OrdinaryHeadBytes - overhead, http1.OrdinaryHeadBytes - overhead + 1, 16384, 100_000,
		flowcontrol.LargestHeadBytes - overhead} {
		// The connection goes on with heads of any size.
		got := answersOf(t, m.plain, cookieOf(n), cookieOf(1), cookieOf(n), cookieOf(n))
		want := fmt.Sprintf("200 cookie %d query 0 body 0", n)
		if fmt.Sprint(got) != fmt.Sprint([]string{want, "200 cookie 1 query 0 body 0", want, want}) {
			t.Errorf("%d: %.200q", n, got)
		}
	}
	if got := answersOf(t, m.plain, cookieOf(flowcontrol.LargestHeadBytes-overhead+1)); got[0] != "431 431 Request "+
		"Header Fields Too Large" {
		t.Errorf("above it: %.200q", got)
	}
	query := strings.Repeat("k", 60_000)
	if got := answersOf(t, m.plain, "GET /x?"+query+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); got[0] != "200 cookie 0 "+
		"query 60000 body 0" {
		t.Errorf("a long query: %.200q", got)
	}
	m.eventuallyFree(t)
}

// A body behind a large head is the request's, whatever its framing, and is never read as another
// request.
func TestBodiesBehindLargeHeads(t *testing.T) {
	m := newMouth(t, 64<<20, measuring)
	head := "POST /x HTTP/1.1\r\nHost: localhost\r\nCookie: " + strings.Repeat("a", 20_000) + "\r\n"
	for framing, request := range map[string]string{
		"sized":   head + "Content-Length: 30000\r\n\r\n" + strings.Repeat("b", 30_000),
		"chunked": head + "Transfer-Encoding: chunked\r\n\r\n7530\r\n" + strings.Repeat("b", 30_000) + "\r\n0\r\n\r\n",
	} {
		if got := answersOf(t, m.plain, request); got[0] != "200 cookie 20000 query 0 body 30000" {
			t.Errorf("%s: %.200q", framing, got)
		}
	}
	m.eventuallyFree(t)
}

// A large head behind another request, in the same write, is not read: where it begins in what was
// read is not known. Behind a large one, the connection is closed.
func TestPipelinedLargeHeads(t *testing.T) {
	m := newMouth(t, 64<<20, measuring)
	c, err := net.Dial("tcp", m.plain)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, cookieOf(1)+cookieOf(20_000)); err != nil {
		t.Fatal(err)
	}
	all, _ := io.ReadAll(c)
	if n := bytes.Count(all, []byte("HTTP/1.1 ")); n != 2 || !bytes.Contains(all, []byte("cookie 1 ")) ||
		!bytes.Contains(all, []byte("431 Request Header")) && !bytes.Contains(all, []byte("cookie 20000 ")) {
		t.Errorf("%d answers: %.300q", n, all)
	}
	c2, err := net.Dial("tcp", m.plain)
	if err != nil {
		t.Fatal(err)
	}
	defer c2.Close()
	_ = c2.SetDeadline(time.Now().Add(patience))
	go func() { _, _ = io.WriteString(c2, cookieOf(20_000)+cookieOf(1)) }()
	all, _ = io.ReadAll(c2)
	if n := bytes.Count(all, []byte("HTTP/1.1 ")); n != 1 || !bytes.Contains(all, []byte("cookie 20000 ")) {
		t.Errorf("%d answers: %.300q", n, all)
	}
	m.eventuallyFree(t)
}

// Where large heads hold all that they may, another one is refused with what to do about it, and
// small ones are served.
func TestLargeHeadsAreBoundedTogether(t *testing.T) {
	gate := make(chan struct{})
	m := newMouth(t, 6<<20, func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Get("Cookie")) > 1 {
			<-gate
		}
		measuring(w, r)
	})
	const most = (6 << 20) / (flowcontrol.HeadCopies * 256 << 10) // heads of 200 kB hold 256 KiB six times
	answered := make(chan string, most)
	for i := range int64(most) {
		go func() { answered <- answersOf(t, m.plain, cookieOf(200_000))[0] }()
		budget := m.limiter.HeaderBudget()
		for end := time.Now().Add(patience); budget.HeldBytes() < (i+1)*flowcontrol.HeadCopies*256<<10; time.Sleep(
			time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d bytes are held after %d heads", m.limiter.HeaderBudget().HeldBytes(), i+1)
			}
		}
	}
	if got := answersOf(t, m.plain, cookieOf(200_000)); !strings.HasPrefix(got[0], `431 {"kind":"Status"`) ||
		!strings.Contains(got[0], "--max-large-header-bytes") {
		t.Errorf("one more: %.400q", got)
	}
	if got := answersOf(t, m.plain, cookieOf(1)); got[0] != "200 cookie 1 query 0 body 0" {
		t.Errorf("a small one: %.200q", got)
	}
	close(gate)
	for range most {
		if got := <-answered; got != "200 cookie 200000 query 0 body 0" {
			t.Errorf("%.200q", got)
		}
	}
	m.eventuallyFree(t)
}

// What passes through and lasts keeps the part of its head that it needs, until its end.
func TestLargeHeadsOfWhatLasts(t *testing.T) {
	gate := make(chan struct{})
	m := newMouth(t, 64<<20, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-gate
	})
	done := make(chan []string, 1)
	go func() {
		done <- answersOf(t, m.plain, strings.Replace(cookieOf(200_000), "/x", "/api/v1/pods?watch=1", 1))
	}()
	const held, kept = flowcontrol.HeadCopies * 256 << 10, 2 * 256 << 10
	for end := time.Now().Add(patience); m.limiter.HeaderBudget().HeldBytes() != kept; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are held, of %d", m.limiter.HeaderBudget().HeldBytes(), held)
		}
	}
	close(gate)
	<-done
	m.eventuallyFree(t)
}
