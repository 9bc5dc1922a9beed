package serve

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	"spillway/internal/apistatus"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/testutil"
)

// answers is an upstream with one path per kind of answer.
func answers() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/small", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Warning", `299 - "one"`)
		w.Header().Add("Warning", `299 - "two"`)
		w.Header().Set("Audit-Id", "from-upstream")
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Keep-Alive", "timeout=5")
		_, _ = io.WriteString(w, `{"a":1}`)
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		for range 300 {
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1000))
		}
	})
	mux.HandleFunc("/gzip", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, "zipped")
		_ = z.Close()
	})
	mux.HandleFunc("/none", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/same", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotModified) })
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "%s %d %s", r.Method, r.ContentLength, b)
	})
	return mux
}

func TestForwardAnswersAsUpstream(t *testing.T) {
	every(t, func(t *testing.T, o frontOptions) {
		fr := newFront(t, answers(), o)
		client := fr.client(t)
		for _, path := range []string{"/small", "/large", "/gzip", "/none", "/same", "/moved", "/absent"} {
			for _, method := range []string{"GET", "HEAD", "OPTIONS", "DELETE"} {
				// Chunked bodies and watch are streamed; answers must not depend on the way.
				for _, query := range []string{"", "?watch=1"} {
					t.Run(method+path+query, func(t *testing.T) {
						want, wantBody := get(t, fr.upstream.Client(), method, fr.upstream.URL+path+query)
						got, gotBody := get(t, client, method, fr.url()+path+query)
						if got.StatusCode != want.StatusCode || gotBody != wantBody {
							t.Errorf("got %d with %d bytes, want %d with %d", got.StatusCode, len(gotBody), want.StatusCode, len(wantBody))
						}
						sameHeaders(t, got.Header, want.Header)
						if (got.ProtoMajor == 2) != o.http2 {
							t.Errorf("answered over %s", got.Proto)
						}
					})
				}
			}
		}
	})
}

func get(t *testing.T, c *http.Client, method, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip") // by hand, so that the client does not unpack
	tr := *c
	tr.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := tr.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// sameHeaders compares all but those of the connection and the clock.
func sameHeaders(t *testing.T, got, want http.Header) {
	t.Helper()
	for _, h := range []http.Header{got, want} {
		for _, name := range []string{"Date", "Connection", "Keep-Alive"} {
			h.Del(name)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("headers\n got %v\nwant %v", got, want)
	}
}

func TestForwardKeepsTheConnection(t *testing.T) {
	every(t, func(t *testing.T, o frontOptions) {
		fr := newFront(t, answers(), o)
		client := fr.client(t)
		for i, step := range []struct{ method, path, body, want string }{
			{"POST", "/echo", "hello", "POST 5 hello"},
			{"GET", "/small", "", `{"a":1}`},
			{"PATCH", "/echo", strings.Repeat("p", 20_000), "PATCH 20000 " + strings.Repeat("p", 20_000)},
			{"PUT", "/echo", strings.Repeat("q", passthrough.OwnedBodyLimit),
				fmt.Sprintf("PUT %d ", passthrough.OwnedBodyLimit) + strings.Repeat("q", passthrough.OwnedBodyLimit)},
			{"DELETE", "/echo", "", "DELETE 0 "},
			{"POST", "/echo", "", "POST 0 "},
			{"GET", "/large", "", strings.Repeat("x", 300_000)},
		} {
			reused := false
			trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
			req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), step.method,
				fr.url()+step.path, strings.NewReader(step.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer token") // of the anonymous, HTTP/2 keeps no connection
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || string(body) != step.want {
				t.Errorf("%s %s: %d bytes, err %v; want %d bytes", step.method, step.path, len(body), err, len(step.want))
			}
			if i > 0 && !reused {
				t.Errorf("%s %s came on a new connection", step.method, step.path)
			}
		}
	})
}

func TestForwardLeavesTheTargetAlone(t *testing.T) {
	seen := make(chan string, 1)
	fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen <- r.RequestURI }),
		frontOptions{})
	for _, target := range []string{
		"/api/v1/namespaces/c1/../c2/configmaps", "/api/v1/namespaces//configmaps", "//api/v1/pods", "/a%2Fb", "/%61",
		"/a{b}|c",
		"/x?", "/x?labelSelector=%zz&a;b=1&&c", "/x?a=?/../b", "/",
	} {
		for _, extra := range []string{"", "Upgrade: x\r\nConnection: upgrade\r\n"} {
			conn, r := fr.dial(t)
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", target, extra)
			if _, err := http.ReadResponse(r, nil); err != nil {
				t.Fatalf("%s: %v", target, err)
			}
			if got := await(t, seen, "the request"); got != target {
				t.Errorf("upstream got %q, want %q", got, target)
			}
			_ = conn.Close()
		}
	}
}

func TestForwardCancelsUpstreamWhenTheClientLeaves(t *testing.T) {
	both(t, func(t *testing.T, o frontOptions) {
		started, cancelled := make(chan struct{}, 1), make(chan struct{}, 1)
		fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("head") {
				_ = http.NewResponseController(w).Flush()
			}
			started <- struct{}{}
			<-r.Context().Done()
			cancelled <- struct{}{}
		}), o)
		for _, target := range []string{"/silent", "/silent?head", "/silent?watch=1", "/silent?head&watch=1",
			"/api/v1/namespaces/a/pods/b/log?follow=true&head"} {
			t.Run(target, func(t *testing.T) {
				conn, _ := fr.dial(t)
				fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target)
				await(t, started, "the request upstream")
				_ = conn.Close()
				await(t, cancelled, "the cancellation upstream")
			})
		}
	})
}

func TestForwardLimits(t *testing.T) {
	release, started := make(chan struct{}), make(chan struct{}, 2)
	fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		<-release
	}), frontOptions{mutate: func(o *passthrough.ForwarderOptions) {
		o.Limiter = impatient(flowcontrol.Limits{Watches: 1, PassThrough: 2, PassThroughPerUser: 1})
	}})
	for _, target := range []string{"/x", "/x?watch=1"} {
		conn, first := fr.dial(t)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target)
		await(t, started, "the request upstream")

		resp, body := get(t, fr.client(t), "GET", fr.url()+target)
		if resp.StatusCode != 429 || !soon(resp.Header.Get("Retry-After")) || body != apistatus.TooManyRequestsText {
			t.Errorf("%s: %d %v %q", target, resp.StatusCode, resp.Header, body)
		}
		release <- struct{}{}
		if resp, err := http.ReadResponse(first, nil); err != nil || resp.StatusCode != 200 {
			t.Errorf("%s: the first request got %v, %v", target, resp, err)
		}
		fr.awaitIdle(t)
	}
	for _, verb := range []string{"read", "watch"} {
		for code, want := range map[string]float64{"200": 1, "429": 1} {
			if n := fr.metric(t, "spillway_passthrough_requests_total", "code="+code, "kind="+verb); n != want {
				t.Errorf("%v requests counted as %s %s, want %v", n, verb, code, want)
			}
		}
		if n := fr.metric(t, "spillway_passthrough_requests_in_flight", "kind="+verb); n != 0 {
			t.Errorf("%v %s requests still in flight", n, verb)
		}
	}
}

// awaitIdle waits until the forwarder has counted every request out.
func (f *front) awaitIdle(t *testing.T) {
	t.Helper()
	eventually(t, "no request to be in flight", func() bool {
		families, err := f.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := 0.0
		for _, family := range families {
			if family.GetName() == "spillway_passthrough_requests_in_flight" {
				for _, m := range family.GetMetric() {
					n += m.GetGauge().GetValue()
				}
			}
		}
		return n == 0
	})
}

func TestForwardUpstreamFailures(t *testing.T) {
	breaks := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	deaf := testutil.RefusingAddress(t)
	refused := func(o *passthrough.ForwarderOptions) { o.Base.Host = deaf }
	every(t, func(t *testing.T, o frontOptions) {
		for _, tc := range []struct {
			name, method, query string
			mutate              func(*passthrough.ForwarderOptions)
			code                int
			retry, text         string
		}{
			{"refused read", "GET", "", refused, 503, "1", "connection refused"},
			{"refused write", "POST", "", refused, 503, "1", "connection refused"},
			{"refused watch", "GET", "?watch=1", refused, 503, "1", "connection refused"},
			{"broken read", "GET", "", nil, 503, "1", "it closed the connection"},
			{"broken write", "POST", "", nil, 502, "", "may have been carried out"},
		} {
			t.Run(tc.name, func(t *testing.T) {
				o.mutate = tc.mutate
				fr := newFront(t, breaks, o)
				resp, body := get(t, fr.client(t), tc.method, fr.url()+"/x"+tc.query)
				if resp.StatusCode != tc.code || resp.Header.Get("Retry-After") != tc.retry || !strings.Contains(body, tc.text) {
					t.Errorf("got %d, Retry-After %q, %s", resp.StatusCode, resp.Header.Get("Retry-After"), body)
				}
				if !strings.HasPrefix(body, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`) {
					t.Errorf("not a Status: %s", body)
				}
			})
		}
	})
}

func TestForwardBrokenAnswerIsNotEndedCleanly(t *testing.T) {
	every(t, func(t *testing.T, o frontOptions) {
		fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}), o)
		for _, query := range []string{"", "?watch=1"} {
			resp, err := fr.client(t).Get(fr.url() + "/x" + query)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(resp.Body); err == nil || string(b) != "part" {
				t.Errorf("%q: read %q, %v; want part and an error", query, b, err)
			}
			_ = resp.Body.Close()
		}
	})
}

// panicking is a transport with a bug.
type panicking struct{}

func (panicking) RoundTrip(*http.Request) (*http.Response, error) { panic("boom") }

func TestForwardContainsPanics(t *testing.T) {
	fr := newFront(t, answers(),
		frontOptions{mutate: func(o *passthrough.ForwarderOptions) { o.Client = all(panicking{}) }})
	for range 2 {
		if resp, _ := get(t, fr.client(t), "GET", fr.url()+"/small"); resp.StatusCode != 502 {
			t.Errorf("got %d, want 502", resp.StatusCode)
		}
	}
	conn, r := fr.dial(t)
	fmt.Fprint(conn, "GET /small?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if _, err := http.ReadResponse(r, nil); err == nil {
		t.Error("a streamed request survived the panic of its transport")
	}
	fr.awaitIdle(t)
}

func TestForwarderClose(t *testing.T) {
	started := make(chan struct{}, 1)
	fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		<-r.Context().Done()
	}), frontOptions{})
	for _, target := range []string{"/x", "/x?watch=1"} {
		conn, _ := fr.dial(t)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target)
		await(t, started, "the request upstream")
	}
	ctx, cancel := context.WithCancel(context.Background())
	closed := make(chan error, 1)
	go func() { closed <- fr.forwarder.Close(ctx) }()
	cancel()
	if err := await(t, closed, "Close"); !errors.Is(err, context.Canceled) {
		t.Errorf("Close returned %v, want what ended the wait", err)
	}
	resp, body := get(t, fr.client(t), "GET", fr.url()+"/x")
	if resp.StatusCode != 503 || !strings.Contains(body, "apiserver is shutting down") {
		t.Errorf("after Close: %d %s", resp.StatusCode, body)
	}
	if err := fr.forwarder.Close(context.Background()); err != nil {
		t.Errorf("the second Close returned %v", err)
	}
}

func TestForwarderCloseUnused(t *testing.T) {
	if err := passthrough.NewForwarder(passthrough.ForwarderOptions{}).Close(context.Background()); err != nil {
		t.Error(err)
	}
}
