package h2

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// handlerMessages is what handlers of tests tell.
type handlerMessages chan string

func (c *client) told(all handlerMessages, want ...string) {
	c.Helper()
	for _, w := range want {
		select {
		case got := <-all:
			if got != w {
				c.Fatalf("told %s\nwant %s", got, w)
			}
		case <-time.After(patience):
			c.Fatalf("%s was not told", w)
		}
	}
}

// A body is what was sent of it, and its end is an error where it is none: of a stream that was
// reset, of a connection that has ended, of one that is shorter than announced, and after a
// deadline.
func TestBodiesAreWholeOrEndWithAnError(t *testing.T) {
	t.Parallel()
	all := make(handlerMessages, 10)
	c := connect(t, options(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		all <- fmt.Sprintf("%d %d %v", r.ContentLength, len(body), err)
	}))
	c.head(1, false, ":method", "POST")
	c.data(1, "some", false)
	c.data(1, "", false)
	c.data(1, " more", true)
	c.told(all, "-1 9 <nil>")
	c.until("HEADERS 1")
	c.head(3, false, ":method", "POST", "content-length", "4")
	c.data(3, "some", true)
	c.told(all, "4 4 <nil>")
	c.until("HEADERS 3")
	c.head(5, false, ":method", "POST", "content-length", "5")
	c.data(5, "some", true)
	c.told(all, "5 4 5 bytes were announced, and 4 came: unexpected EOF")
	c.until("HEADERS 5")
	c.head(7, false, ":method", "POST", "content-length", "5")
	c.data(7, "something", true)
	c.told(all, "5 0 the request body is longer than announced")
	c.until("RST_STREAM 7 PROTOCOL_ERROR")
	c.head(9, false, ":method", "POST")
	c.data(9, "some", false)
	c.must(c.framer.WriteRSTStream(9, http2.ErrCodeCancel))
	c.told(all, "-1 4 "+ErrReset.Error())
	c.head(11, false, ":method", "POST")
	c.quiet()
	_ = c.net.Close()
	c.told(all, "-1 0 "+errGone.Error())
}

// A deadline for reading lets reads fail, at once if it has passed.
func TestReadsFailAtTheirDeadline(t *testing.T) {
	t.Parallel()
	all := make(handlerMessages, 10)
	c := connect(t, options(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		for _, at := range []time.Time{time.Now().Add(time.Hour), {}, time.Now().Add(10 * time.Millisecond)} {
			_ = control.SetReadDeadline(at)
		}
		if r.URL.Path == "/past" {
			_ = control.SetReadDeadline(time.Unix(1, 0))
		}
		_, err := io.ReadAll(r.Body)
		all <- fmt.Sprint(errors.Is(err, os.ErrDeadlineExceeded))
	}))
	c.head(1, false, ":method", "POST", ":path", "/")
	c.told(all, "true")
	c.until("RST_STREAM 1 NO_ERROR")
	c.head(3, false, ":method", "POST", ":path", "/past")
	c.told(all, "true")
}

// The request has the announced trailers once its handler has read the body to the end. Until then,
// the connection does not write to the request.
func TestRequestTrailers(t *testing.T) {
	t.Parallel()
	all, gate := make(handlerMessages, 10), make(chan struct{})
	c := connect(t, options(func(_ http.ResponseWriter, r *http.Request) {
		all <- fmt.Sprint(slices.Sorted(maps.Keys(r.Trailer)), r.Header["Trailer"])
		for range 100 {
			_ = r.Clone(r.Context())
		}
		<-gate
		all <- fmt.Sprint(r.Trailer)
		body, err := io.ReadAll(r.Body)
		all <- fmt.Sprintf("%q %v %v", body, err, r.Trailer)
	}))
	c.head(1, false, ":method", "POST", "trailer", "A, b", "trailer", "Content-Length,C")
	c.data(1, "body", false)
	c.raw(1, true, "a", "1", "a", "2", "c", "3", "d", "4")
	c.told(all, "[A B C] []")
	close(gate)
	c.told(all, "map[A:[] B:[] C:[]]", `"body" <nil> map[A:[1 2] B:[] C:[3]]`)
	c.until("HEADERS 1")

	c.head(3, false, ":method", "POST")
	c.raw(3, true, "content-length", "1") // not announced, so dropped
	c.told(all, "[] []", "map[]", `"" <nil> map[]`)
	c.until("HEADERS 3")
}

// Trailers that are none end their stream, and a second one the connection.
func TestBadTrailersEndTheirStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, options(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		c.head(1, false, ":method", "POST")
		c.raw(1, false, "a", "1")
		c.expect("RST_STREAM 1 PROTOCOL_ERROR")
		c.head(3, false, ":method", "POST")
		c.raw(3, true, ":path", "/")
		c.expect("RST_STREAM 3 PROTOCOL_ERROR")
		c.head(5, false, ":method", "POST", "trailer", "a")
		c.raw(5, true, "content-length", "1")
		c.expect("RST_STREAM 5 PROTOCOL_ERROR")
		c.get(7, "/")
		c.raw(7, true, "a", "1")
		c.expect("RST_STREAM 7 STREAM_CLOSED")
		c.raw(7, true, "a", "1")
		c.last("GOAWAY 7 PROTOCOL_ERROR")
	})
}

// A request that expects 100 Continue gets it when the handler reads the body, but not once the
// response has begun.
func TestContinueIsSentWhenTheBodyIsRead(t *testing.T) {
	t.Parallel()
	c := connect(t, options(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Expect") != "" {
			t.Error("the handler sees what was expected")
		}
		switch r.URL.Path {
		case "/answered":
			_ = http.NewResponseController(w).Flush()
		case "/unread":
			return
		}
		_, _ = io.ReadAll(r.Body)
	}))
	ask := func(id uint32, path string) {
		c.head(id, false, ":method", "POST", ":path", path, "expect", "100-continue")
	}
	ask(1, "/")
	c.expect("HEADERS 1 status=100")
	c.data(1, "", true)
	c.expect("HEADERS 1 status=200 content-length=0 END")
	ask(3, "/answered")
	c.expect("HEADERS 3 status=200")
	c.data(3, "", true)
	c.expect(`DATA 3 "" END`)
	ask(5, "/unread")
	c.expect("HEADERS 5 status=200 content-length=0 END", "RST_STREAM 5 NO_ERROR")
}

// Whose request it is and where it goes is never in doubt.
func TestTheTargetOfARequestIsUnambiguous(t *testing.T) {
	t.Parallel()
	all := make(handlerMessages, 1)
	opts := options(func(_ http.ResponseWriter, r *http.Request) {
		all <- fmt.Sprintf("%s %s %s %v %v", r.Method, r.Host, r.URL, r.Header["Host"], r.Header["Cookie"])
	})
	c := connect(t, opts)
	id := uint32(1)
	for _, test := range []struct {
		fields []string
		want   string // "": a stream error
	}{
		{[]string{":method", "GET", ":scheme", "https", ":authority", "a:1", ":path", "/b?c"}, "GET a:1 /b?c [] []"},
		{[]string{":method", "GET", ":scheme", "http", ":path", "/b", "host", "a"}, "GET a /b [] []"},
		{[]string{":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/b", "host", "a"}, "GET a /b [] []"},
		{[]string{":method", "GET", ":scheme", "http", ":path", "/", "cookie", "a=b", "cookie", "c=d"},
			"GET  / [] [a=b; c=d]"},
		{[]string{":method", "OPTIONS", ":scheme", "http", ":authority", "a", ":path", "*"}, "OPTIONS a * [] []"},
		{[]string{":method", "CONNECT", ":authority", "a:1"}, "CONNECT a:1 //a:1 [] []"},
		{[]string{":method", "CONNECT", ":authority", "a:1", ":path", "/"}, ""},
		{[]string{":method", "CONNECT", ":scheme", "https", ":authority", "a:1", ":path", "/", ":protocol", "websocket"}, ""},
		{[]string{":method", "CONNECT"}, ""},
		{[]string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/", "host", "b"}, ""},
		{[]string{":method", "GET", ":scheme", "https", ":path", "/", "host", "a", "host", "a"}, ""},
		{[]string{":method", "GET", ":scheme", "https", ":authority", "u@a", ":path", "/"}, ""},
		{[]string{":method", "GET", ":scheme", "https", ":authority", "a b", ":path", "/"}, ""},
		{[]string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", "b"}, ""},
		{[]string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/%zz"}, ""},
		{[]string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", ""}, ""},
		{[]string{":method", "GET", ":scheme", "https", ":authority", "a"}, ""},
		{[]string{":method", "GET", ":scheme", "ftp", ":authority", "a", ":path", "/"}, ""},
		{[]string{":scheme", "https", ":authority", "a", ":path", "/"}, ""},
		{[]string{":method", "GET", ":method", "GET", ":scheme", "https", ":path", "/"}, ""},
		{[]string{"a", "b", ":method", "GET", ":scheme", "https", ":path", "/"}, ""},
		{[]string{":method", "GET", ":scheme", "https", ":path", "/", "A", "b"}, ""},
		{[]string{":method", "GET", ":scheme", "https", ":path", "/", "a", "b\r\nc: d"}, ""},
		{[]string{":method", "GET", ":scheme", "https", ":status", "200", ":path", "/"}, ""},
	} {
		c.raw(id, true, test.fields...)
		if test.want == "" {
			if got, want := c.next(), fmt.Sprintf("RST_STREAM %d PROTOCOL_ERROR", id); got != want {
				t.Errorf("%q: %s, want %s", test.fields, got, want)
			}
		} else {
			c.told(all, test.want)
			c.until(fmt.Sprint("HEADERS ", id))
		}
		id += 2
	}
}

// What is about a connection has no place in a request, and a head that is too long is refused; the
// connection goes on.
func TestRefusedHeadsLeaveTheConnectionOpen(t *testing.T) {
	t.Parallel()
	c := connect(t, options(func(http.ResponseWriter, *http.Request) {}))
	id := uint32(1)
	for _, f := range [][2]string{
		{"connection", "close"}, {"keep-alive", "1"}, {"proxy-connection", "x"}, {"transfer-encoding", "chunked"},
		{"upgrade", "h2c"}, {"te", "gzip"},
	} {
		c.head(id, true, f[0], f[1])
		c.until(fmt.Sprintf("HEADERS %d status=400", id))
		c.until("DATA")
		id += 2
	}
	c.head(id, true, "te", "trailers")
	c.until(fmt.Sprintf("HEADERS %d status=200", id))
	c.head(id+2, true, "a", text(3<<10), "b", text(3<<10), "c", text(3<<10))
	c.until(fmt.Sprintf("HEADERS %d status=431", id+2))
	c.until("DATA")
	c.get(id+4, "/")
	c.until(fmt.Sprintf("HEADERS %d status=200", id+4))
}
