package h2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// asker is net/http's client, each of whose connections is served by serve. wait is how long it
// waits for 100 before it sends a body.
func asker(t *testing.T, wait time.Duration, serve func(net.Conn)) *http.Client {
	t.Helper()
	var serving sync.WaitGroup
	var mu sync.Mutex
	var all []net.Conn // net/http closes only those that it thinks are idle
	over := false      // net/http may still dial for a request that another connection has answered
	plain := new(http.Protocols)
	plain.SetUnencryptedHTTP2(true)
	tr := &http.Transport{
		Protocols: plain, DisableCompression: true, ExpectContinueTimeout: wait,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			defer listener.Close()
			mine, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				return nil, err
			}
			theirs, err := listener.Accept()
			if err != nil {
				return nil, errors.Join(err, mine.Close())
			}
			mu.Lock()
			defer mu.Unlock()
			if over {
				return nil, errors.Join(net.ErrClosed, mine.Close(), theirs.Close())
			}
			all = append(all, mine)
			serving.Go(func() { serve(theirs) })
			return mine, nil
		},
	}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		mu.Lock()
		over = true
		for _, c := range all {
			_ = c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return &http.Client{Transport: tr}
}

// answer is all that a client learns.
func answer(t *testing.T, c *http.Client, method string, body io.Reader, header, trailer http.Header) string {
	t.Helper()
	var told []string
	trace := &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			told = append(told, fmt.Sprint(code, " ", h))
			return nil
		},
	}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), method, "http://host/path?query",
		body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header, r.Trailer = header.Clone(), trailer.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if r.Body != nil && r.Header.Get("Length") == "unknown" {
		r.ContentLength = -1
	}
	resp, err := c.Do(r)
	if err != nil {
		return fmt.Sprintf("%v, error %t", told, err != nil)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	date := resp.Header.Get("Date")
	if len(date) == len(http.TimeFormat) {
		resp.Header.Set("Date", "a date")
	}
	return fmt.Sprintf("%v\n%s %d %v\n%d bytes %.80q, error %t\ntrailer %v", told, resp.Status, resp.ContentLength,
		resp.Header, len(all), all, err != nil, resp.Trailer)
}

// handlersToCompare run on both servers.
var handlersToCompare = map[string]http.HandlerFunc{
	"nothing": func(http.ResponseWriter, *http.Request) {},
	"small":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>small") },
	"as much as is held": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("a"), heldBytesLimit-1))
		_, _ = w.Write([]byte("b"))
	},
	"more than is held": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, heldBytesLimit+1)) },
	"large":             func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 300_000)) },
	"small, then large": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<")
		_, _ = io.WriteString(w, "html>"+strings.Repeat("x", 5000))
	},
	"flushed": func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, "one")
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, "two")
	},
	"an empty type": func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		_, _ = w.Write([]byte("x"))
	},
	"a type": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "a/b")
		_, _ = w.Write([]byte("x"))
	},
	"encoded": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write([]byte("x"))
	},
	"a date":  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", "today") },
	"no date": func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = nil },
	"a length": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3")
		_, _ = w.Write([]byte("abc"))
	},
	"a length alone":   func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "3") },
	"a length of zero": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "0") },
	"too little": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3")
		_, _ = w.Write([]byte("a"))
	},
	"a length that is none": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "-3")
		_, _ = w.Write([]byte("abc"))
	},
	"no content": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write([]byte("x")); err != http.ErrBodyNotAllowed {
			panic("a body of 204")
		}
	},
	"not modified": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		w.Header().Set("Etag", "x")
		w.WriteHeader(http.StatusNotModified)
	},
	"two statuses": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(404)
		w.WriteHeader(500)
		_, _ = w.Write([]byte("x"))
	},
	"late headers": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); w.Header().Set("Late", "x") },
	"many values":  func(w http.ResponseWriter, _ *http.Request) { w.Header()["A"] = []string{"1", "2", ""} },
	"bad headers": func(w http.ResponseWriter, _ *http.Request) {
		for _, f := range [][2]string{{"A B", "x"}, {"C", "a\nb"}, {"Transfer-Encoding", "chunked"}, {"D", "ok"},
			{"é", "x"}} {
			w.Header()[f[0]] = []string{f[1]}
		}
	},
	"long headers": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Long", strings.Repeat("x", 50_000)) },
	"1xx": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "a")
		w.Header().Set("Content-Length", "1")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		_, _ = w.Write([]byte("x"))
	},
	"connection close": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = w.Write([]byte("x"))
	},
	"trailers": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "A, b")
		w.Header().Add("Trailer", "C,Content-Length")
		_, _ = w.Write([]byte("x"))
		w.Header().Set("A", "1")
		w.Header()["B"] = []string{"2", "3"}
		w.Header().Set("D", "4")
	},
	"trailers of much": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "A")
		for range 3 {
			_, _ = w.Write(make([]byte, 5000))
			w.(http.Flusher).Flush()
		}
		w.Header().Set("A", "1")
	},
	"trailers of nothing": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "A")
		w.WriteHeader(200)
		w.Header().Set("A", "1")
	},
	"trailers that never come": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "A")
		_, _ = w.Write([]byte("x"))
	},
	"trailers without warning": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("x"))
		w.Header().Set(http.TrailerPrefix+"A", "1")
	},
	"echo": func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		keys := slices.Sorted(func(yield func(string) bool) {
			for key := range r.Header {
				if !yield(key) {
					return
				}
			}
		})
		fmt.Fprintf(w, "%s %s %s %s %s %d %v %d bytes %v %v %v", r.Method, r.Host, r.RequestURI, r.URL, r.Proto,
			r.ContentLength, keys, len(body), err, r.Trailer, r.TransferEncoding)
	},
	"echo, unread":  func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.ContentLength) },
	"closed unread": func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Body.Close()) },
	"read later": func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	},
	"aborted": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"aborted later": func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	},
	"an invalid error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) },
}

// requestsToCompare are sent to each handler.
var requestsToCompare = map[string]struct {
	method          string
	body            int
	header, trailer http.Header
}{
	"GET":          {method: "GET"},
	"HEAD":         {method: "HEAD"},
	"OPTIONS":      {method: "OPTIONS", header: http.Header{"Cookie": {"a=b", "c=d"}, "Te": {"trailers"}}},
	"POST":         {method: "POST", body: 10},
	"POST of much": {method: "POST", body: 300_000},
	"POST of unknown length": {method: "POST", body: 10_000, header: http.Header{"Length": {"unknown"}},
		trailer: http.Header{"T": {"1"}}},
	"POST that waits": {method: "POST", body: 10_000, header: http.Header{"Expect": {"100-continue"}}},
}

// A client of net/http learns the same from this server as from golang.org/x/net/http2's, whatever
// the handler does.
func TestAnswersEqualThoseOfTheStandardServer(t *testing.T) {
	t.Parallel()
	for what, handler := range handlersToCompare {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			opts := options(handler)
			opts.MaxHeader = http.DefaultMaxHeaderBytes
			server := &http2.Server{}
			wait := patience
			if what == "read later" { // the head has gone, so the client waits for nothing
				wait = time.Second
			}
			want, got := asker(t, wait, func(c net.Conn) {
				server.ServeConn(c, &http2.ServeConnOpts{Handler: handler,
					BaseConfig: &http.Server{ErrorLog: log.New(io.Discard, "", 0)}})
			}), asker(t, wait, func(c net.Conn) { serve(c, opts) })
			for how, r := range requestsToCompare {
				ask := func(c *http.Client) string {
					var body io.Reader
					if r.body > 0 {
						body = bytes.NewReader(make([]byte, r.body))
					}
					return answer(t, c, r.method, body, r.header, r.trailer)
				}
				if theirs, ours := ask(want), ask(got); ours != theirs {
					t.Errorf("%s:\ngot  %s\nwant %s", how, ours, theirs)
				}
			}
		})
	}
}
