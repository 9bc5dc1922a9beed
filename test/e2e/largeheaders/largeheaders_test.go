// Package largeheaders has clients without credentials try to make a Spillway hold memory by heads
// of requests that are small on the wire and large once they are decoded, and others send large
// heads that are to pass.
package largeheaders

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"spillway/internal/fakeapiserver"
	"spillway/test/framework/process"
)

// world is a proxy in front of a small API server that knows one token, and refuses requests for
// nodes.
type world struct {
	*testing.T
	up       *fakeapiserver.Server
	proxy    *process.Proxy
	measures string      // the socket where the proxy says what it holds, if it was built for that
	still    *sync.Mutex // held during a well-meaning client's request, and during a measurement
}

func newWorld(t *testing.T, binary string, args ...string) *world {
	t.Helper()
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond, HTTP2: true})
	t.Cleanup(up.Close)
	reviews := up.Reviews()
	reviews.Know("good", authenticationv1.UserInfo{Username: "good"})
	reviews.Allow(func(authorizationv1.SubjectAccessReviewSpec) bool { return true })
	up.Handle("/api/v1/nodes", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, reason := http.StatusForbidden, "Forbidden"
		if r.Header.Get("Authorization") != "" {
			code, reason = http.StatusUnauthorized, "Unauthorized"
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
			`"message":"nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\"",`+
			`"reason":%q,"code":%d}`, reason, code)
	}))
	up.Handle("/measure", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%d %d", len(r.Header.Get("Cookie")), len(r.URL.RawQuery))
	}))
	for _, path := range []string{"/gather", "/gather/bodies"} {
		arrived := make(chan struct{}, gathered)
		up.Handle(path, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			for len(arrived) < gathered && r.Context().Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
		}))
	}
	for i := range 100 {
		up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint("map-", i), fakeapiserver.WithPadding(1000))
	}
	args = append([]string{"--kubeconfig=" + writeKubeconfig(t, up), "--resources=configmaps", "--listen-tls=127.0.0.1:0",
		"--log-level=info", "--profiling", "--allow-core-dumps"}, args...)
	w := newUnstarted(t)
	w.up, w.proxy = up, process.StartProxy(t, binary, args...)
	w.warm()
	return w
}

// newUnstarted is a world whose program is yet to be started.
func newUnstarted(t *testing.T) *world {
	t.Helper()
	measures := filepath.Join(t.TempDir(), "measure")
	t.Setenv("HEADS_MEASURE", measures)
	return &world{T: t, measures: measures, still: &sync.Mutex{}}
}

// writeKubeconfig leads to a small API server.
func writeKubeconfig(t *testing.T, up *fakeapiserver.Server) string {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test","contexts":[{"name":"test","context":{"cluster":"test"}}],
"clusters":[{"name":"test","cluster":{"server":%q,"certificate-authority-data":%q}}]}`, up.URL, base64.StdEncoding.EncodeToString(up.Config().CAData))
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// gathered is how many requests are under way at a time before anything is measured: as many as all
// connections of an attack can have. The connections to upstream that these need are kept for later
// requests, and are bounded by --max-passthrough-requests, not by what one connection may have.
const gathered = 260

// warm has a client that means well do what needs that. The first request that fails ends the test,
// because upstream answers none of a path before all of them have arrived.
func (w *world) warm() {
	w.Helper()
	client := w.client()
	for _, sent := range []struct {
		method, path string
		body         func() io.Reader
	}{
		{http.MethodGet, "/gather", func() io.Reader { return http.NoBody }},
		{http.MethodPost, "/gather/bodies", func() io.Reader { // which goes over HTTP/1.1
			return io.MultiReader(strings.NewReader("a body of unknown length"))
		}},
	} {
		all, ctx := errgroup.WithContext(w.Context())
		for i := range gathered {
			all.Go(func() error {
				if err := expectOK(ctx, client, sent.method, w.proxy.TLS+sent.path, sent.body()); err != nil {
					return fmt.Errorf("request %d of %d, %s %s: %w", i+1, gathered, sent.method, sent.path, err)
				}
				return nil
			})
		}
		if err := all.Wait(); err != nil {
			w.Fatal(err)
		}
	}
	// a connection is idle a little after the last body on it was closed
	process.Awaiting(w.T, "no connection is left", func(ctx context.Context) error {
		client.CloseIdleConnections()
		n, err := process.ReadMetric(ctx, w.proxy.Metrics, "spillway_http2_connections")
		if err != nil || n > 0 {
			return fmt.Errorf("%d connections, %v", n, err)
		}
		return nil
	})
}

// expectOK sends a request, and returns an error unless the answer is 200.
func expectOK(ctx context.Context, client *http.Client, method, url string, body io.Reader) error {
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 500)) // for the message alone
		return fmt.Errorf("answered %s: %s", response.Status, text)
	}
	return nil
}

// client is one that means well, with connections of its own.
func (w *world) client() *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	w.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: bearer{transport}}
}

type bearer struct{ next *http.Transport }

func (b bearer) CloseIdleConnections() { b.next.CloseIdleConnections() }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer good")
	return b.next.RoundTrip(r)
}

func (w *world) list(client *http.Client) error {
	response, err := client.Get(w.proxy.TLS + "/api/v1/configmaps?resourceVersion=0")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var list struct{ Items []json.RawMessage }
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil || len(list.Items) != 100 {
		return fmt.Errorf("%s, %d items, %v", response.Status, len(list.Items), err)
	}
	return nil
}

// TestLargeHeadsPass: heads up to the API server's own limit pass, over HTTP/1.1 without
// credentials, and over HTTP/2 with some.
func TestLargeHeadsPass(t *testing.T) {
	w := newWorld(t, process.BuildProxy(t))
	one := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(one.CloseIdleConnections)
	for name, c := range map[string]struct {
		client *http.Client
		url    string
	}{
		"plain": {&http.Client{Transport: one}, w.proxy.Plain}, "TLS": {&http.Client{Transport: one}, w.proxy.TLS},
		"HTTP/2": {w.client(), w.proxy.TLS},
	} {
		for _, size := range []int{16384, 100_000, 990_000} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				c.url+"/measure?"+strings.Repeat("q", size/20), nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Cookie", strings.Repeat("a", size))
			response, err := c.client.Do(r)
			if err != nil {
				t.Fatalf("%s, %d: %v", name, size, err)
			}
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if want := fmt.Sprintf("%d %d", size, size/20); string(body) != want || response.StatusCode != http.StatusOK {
				t.Errorf("%s, %d: %s, %.200q", name, size, response.Status, body)
			}
		}
	}
	w.quiet(0)
}

// follow has a client that means well list and watch until the returned function is called, which
// fails if the client was not served.
func (w *world) follow() (stop func()) {
	w.Helper()
	client := w.client()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("%s/api/v1/configmaps?watch=1&resourceVersion=%d", w.proxy.TLS, w.up.Revision()), nil)
	if err != nil {
		w.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil || response.StatusCode != http.StatusOK {
		w.Fatalf("%v, %v", response, err)
	}
	var both sync.WaitGroup
	seen := make(chan string, 1000)
	both.Go(func() {
		defer close(seen)
		events := bufio.NewReader(response.Body)
		for {
			line, err := events.ReadString('\n')
			if err != nil {
				return
			}
			seen <- line
		}
	})
	var failed error
	lists := 0
	both.Go(func() {
		for ctx.Err() == nil {
			w.still.Lock()
			if err := w.list(client); err != nil && failed == nil {
				failed = err
			}
			w.still.Unlock()
			lists++
			time.Sleep(20 * time.Millisecond)
		}
	})
	changes := 0
	change := func() {
		changes++
		w.up.Update(fakeapiserver.ConfigMaps, "n", "map-1", fakeapiserver.WithPadding(1000+changes))
		select {
		case line, open := <-seen:
			if !open || !strings.Contains(line, `"MODIFIED"`) {
				w.Errorf("the watch has %.100q", line)
			}
		case <-time.After(process.Patience):
			w.Error("the watch has no event")
		}
	}
	change()
	return func() {
		change()
		cancel()
		_ = response.Body.Close()
		both.Wait()
		if failed != nil || lists == 0 {
			w.Errorf("of %d lists: %v", lists, failed)
		}
	}
}
