// Package heads has clients without credentials try to make a Spillway hold memory by heads of requests that are small
// on the wire and large once they are decoded, and others send large heads that are to pass.
package heads

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"spillway/internal/kubetest"
	"spillway/test/process"
)

// perConnection is what a connection without credentials may make the process hold, in bytes,
// beyond what an idle one does.
const perConnection = 64 << 10

// What is measured beside that, of the whole process: noise is what a client that means well and
// caches have in use, more at one time than at another, and garbage what is resident between two
// collections, however little is in use.
const (
	noise   = 768 << 10
	garbage = 24 << 20
)

// world is a proxy before a small apiserver that knows one token, and refuses nodes to every user.
type world struct {
	*testing.T
	up    *kubetest.Server
	proxy *process.Proxy
}

func newWorld(t *testing.T, binary string, args ...string) *world {
	t.Helper()
	up := kubetest.New(kubetest.Options{ProofDelay: 10 * time.Millisecond, HTTP2: true})
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
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\"","reason":%q,"code":%d}`, reason, code)
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
		up.Create(kubetest.ConfigMaps, "n", fmt.Sprint("map-", i), kubetest.WithPadding(1000))
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test","contexts":[{"name":"test","context":{"cluster":"test"}}],
"clusters":[{"name":"test","cluster":{"server":%q,"certificate-authority-data":%q}}]}`, up.URL, base64.StdEncoding.EncodeToString(up.Config().CAData))
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--kubeconfig=" + kubeconfig, "--resources=configmaps", "--listen-tls=127.0.0.1:0",
		"--log-level=info", "--debug"}, args...)
	w := &world{t, up, process.StartProxy(t, binary, args...)}
	w.warm()
	return w
}

// gathered is how many requests are under way at a time before anything is measured: as many as all connections of an
// attack can have. The connections to upstream that these need are kept for later requests, and are bounded by
// --max-passthrough-requests, not by what one connection may have.
const gathered = 260

// warm has a client that means well do what needs that.
func (w *world) warm() {
	w.Helper()
	client := w.client()
	for _, ask := range []func() (*http.Response, error){
		func() (*http.Response, error) { return client.Get(w.proxy.TLS + "/gather") },
		func() (*http.Response, error) { // which goes over HTTP/1.1
			return client.Post(w.proxy.TLS+"/gather/bodies", "", io.MultiReader(strings.NewReader("a body of unknown length")))
		},
	} {
		var all sync.WaitGroup
		for range gathered {
			all.Go(func() {
				response, err := ask()
				if err != nil {
					w.Error(err)
					return
				}
				if response.StatusCode != http.StatusOK {
					w.Error(response.Status)
				}
				_ = response.Body.Close()
			})
		}
		all.Wait()
	}
	client.CloseIdleConnections()
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

// held is what the process has in use after a collection, heap and stacks; what its heap keeps
// beside that, free but not given back to the system; and what is resident.
type held struct{ used, free, resident int64 }

func (h held) less(other held) held {
	return held{h.used - other.used, h.free - other.free, h.resident - other.resident}
}

func (w *world) held() held {
	w.Helper()
	least := held{1 << 60, 1 << 60, 1 << 60}
	// what pools have is garbage after the second, and what the client needs that means well is
	// there at times
	for range 5 {
		response, err := http.Get(w.proxy.Metrics + "/debug/pprof/heap?gc=1")
		if err != nil {
			w.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		heap := func(name string) int64 {
			return int64(process.Metric(w.T, w.proxy.Metrics, "go_memstats_"+name+"_bytes"))
		}
		used := heap("heap_alloc") + heap("stack_inuse")
		if used < least.used {
			least.used, least.free = used, heap("heap_sys")-heap("heap_released")-heap("heap_alloc")
		}
		least.resident = min(least.resident, w.proxy.Resident(w.T))
	}
	return least
}

// profile writes a profile of the memory in use to a file.
func (w *world) profile(file string) {
	response, err := http.Get(w.proxy.Metrics + "/debug/pprof/heap?gc=1")
	if err != nil {
		w.Fatal(err)
	}
	defer response.Body.Close()
	profile, err := io.ReadAll(response.Body)
	if err == nil {
		err = os.WriteFile(file, profile, 0o600)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// quiet waits until as many connections are open as that, and what they asked for has been answered.
func (w *world) quiet(connections int) {
	w.Helper()
	process.Awaiting(w.T, fmt.Sprintf("%d connections, and nothing under way", connections),
		func(ctx context.Context) error {
			for name, want := range map[string]int{"spillway_http2_connections": connections,
				"spillway_flowcontrol_current_passthrough_requests": 0, "spillway_flowcontrol_current_head_bytes": 0} {
				n, err := process.ReadMetric(ctx, w.proxy.Metrics, name)
				if err != nil || n > want {
					return fmt.Errorf("%s is %d, %v", name, n, err)
				}
			}
			return nil
		})
}

// TestFewBytesHoldLittle: connections without credentials open all the streams that they may, with heads that are a
// megabyte once they are decoded, and take nothing of the answers. What the process holds for each of them is bounded,
// and a client that means well is served.
func TestFewBytesHoldLittle(t *testing.T) {
	binary := process.BuildProxy(t)
	for _, budget := range []string{"1Ti", "512Mi"} {
		t.Run("with a budget of "+budget, func(t *testing.T) {
			for name, attack := range attacks {
				if testing.Short() && budget != "1Ti" && name != "cookie" && name != "a field that is not joined" {
					continue
				}
				t.Run(name, func(t *testing.T) {
					w := newWorld(t, binary, "--memory-budget="+budget)
					good := w.follow()
					for _, connections := range []int{2, 8, 64} {
						if testing.Short() && connections < 64 {
							continue
						}
						w.attack(attack, connections)
					}
					good()
					if most := w.proxy.MostResident(t); budget == "512Mi" && most > 512<<20 {
						t.Errorf("it took %d MiB", most>>20)
					}
				})
			}
		})
	}
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
	w.quiet(1)
}

// attack measures what so many connections make the process hold: idle ones, and then as many of the attack's.
func (w *world) attack(h head, connections int) {
	w.Helper()
	open := func(ask bool) (held, int64) {
		all := make([]*attacker, connections)
		for i := range all {
			all[i] = connect(w.T, w.proxy)
		}
		var asking sync.WaitGroup
		sent := int64(0)
		for _, a := range all {
			if ask {
				asking.Go(func() { a.ask(h) })
			}
		}
		asking.Wait()
		w.quiet(connections + 2)
		now := w.held()
		if name := os.Getenv("HEADS_PROFILES"); name != "" {
			w.profile(filepath.Join(name, fmt.Sprintf("heap-%d-%v", connections, ask)))
		}
		for _, a := range all {
			sent += a.sent
			a.close()
		}
		w.quiet(2)
		return now, sent
	}
	open(false) // what the first connections need
	var all []held
	var sent int64
	var resident int64
	for range rounds {
		idle, _ := open(false)
		var busy held
		busy, sent = open(true)
		all, resident = append(all, busy.less(idle)), busy.resident
	}
	slices.SortFunc(all, func(a, b held) int { return cmp.Compare(a.used, b.used) })
	middle := all[len(all)/2]
	each := func(n int64) float64 { return float64(n) / float64(connections) / 1024 }
	w.Logf("%2d connections, %5d kB sent: in use %6.1f kB each, free heap %6.1f, resident %6.1f, of %d kB; noise %d kB",
		connections,
		sent>>10, each(middle.used), each(middle.free), each(middle.resident), resident>>10,
		(all[len(all)-1].used-all[0].used)>>10)
	if middle.used > int64(connections)*perConnection+noise {
		w.Errorf("%d connections hold %d kB", connections, middle.used>>10)
	}
	if middle.resident > int64(connections)*perConnection+garbage {
		w.Errorf("%d connections: %d kB more are resident", connections, middle.resident>>10)
	}
}

// rounds is how often each measurement is made. The one in the middle counts: what a client that
// means well and caches have in use is more at one time than at another.
const rounds = 3

// follow has a client that means well list and watch until the returned function is called, which
// fails if it was not served.
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
			if err := w.list(client); err != nil && failed == nil {
				failed = err
			}
			lists++
			time.Sleep(20 * time.Millisecond)
		}
	})
	changes := 0
	change := func() {
		changes++
		w.up.Update(kubetest.ConfigMaps, "n", "map-1", kubetest.WithPadding(1000+changes))
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
