// Package selectors has one user watch, through Spillway and in front of a real kube-apiserver, by
// more selectors and longer ones than any program needs. Another user's watch misses nothing, what
// the selectors weigh is bounded and shown, and the hub evaluates none of the long ones.
package selectors

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const (
	mallory controlplane.User = "mallory" // may read namespace a
	alice   controlplane.User = "alice"   // may read namespace b
)

// patience bounds what a working proxy does at once.
const patience = 2 * time.Minute

// selectorAttack is watches of mallory's: so many of so many terms each.
type selectorAttack struct {
	watches, terms int
	equal          bool
}

// share is what one user's selectors may weigh in this test. All attacks together exceed it.
const share = 40_000

var attacks = []selectorAttack{
	{watches: 5, terms: 12_000},
	{watches: 40, terms: 3000, equal: true},
	{watches: 100, terms: 256},
	{watches: 200, terms: 10},
}

// selector has so many terms, and is another one for each number. It sees everything.
func selector(terms, number int) string {
	all := make([]string, terms)
	for i := range all {
		all[i] = fmt.Sprintf("k%d.%d!=v", number, i)
	}
	return strings.Join(all, ",")
}

// bearer is a client that shows a token, over HTTP/2.
func bearer(t *testing.T, token string) func(ctx context.Context, url string) (*http.Response, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return func(ctx context.Context, url string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
		return transport.RoundTrip(r)
	}
}

func TestCostlySelectorsDelayNoOtherUser(t *testing.T) {
	t.Parallel()
	c := authcluster.Start(t, authcluster.Options{Users: map[controlplane.User][]string{mallory: nil, alice: nil}})
	for namespace, user := range map[string]controlplane.User{"a": mallory, "b": alice} {
		c.Namespace(t, namespace)
		c.Grant(t, c.User(user), authcluster.In(namespace, authcluster.Rule("get,list,watch", "", "configmaps")))
	}
	c.Settle(t)
	proxy := process.StartProxy(t, process.BuildProxy(t),
		append(c.ProxyFlags(), "--resources=configmaps", fmt.Sprint("--max-selector-terms-per-user=", share))...)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()

	quiet := watch(ctx, t, bearer(t, c.Config(alice).BearerToken),
		proxy.TLS+"/api/v1/namespaces/b/configmaps?watch=1&resourceVersion=0")
	defer quiet.Body.Close()
	codes, end := besiege(ctx, t, bearer(t, c.Config(mallory).BearerToken), proxy.TLS)
	defer end()
	if codes[http.StatusOK] == 0 || codes[http.StatusTooManyRequests] == 0 || len(codes) != 2 {
		t.Errorf("answers to the attack: %v", codes)
	}
	metric := func(name string) int { return process.Metric(t, proxy.Metrics, name) }
	if n := metric(`spillway_flowcontrol_in_use{limit="selector_terms"`); n > share || n < share/2 {
		t.Errorf("%d terms, of %d", n, share)
	}
	refused := metric(`spillway_flowcontrol_rejected_requests_total{limit="selector_terms"`)
	if n := refused; n != codes[http.StatusTooManyRequests] {
		t.Errorf("%d refusals are counted, of %d", n, codes[http.StatusTooManyRequests])
	}
	if n := metric("spillway_selector_bytes"); n > 64*share {
		t.Errorf("the selectors take %d bytes", n)
	}
	if n := metric(`spillway_dispatch_lanes{resource="configmaps"`); n != 1 {
		t.Errorf("%d lanes", n)
	}

	const events = 50
	written := write(t, c, events)
	heard(t, quiet.Body, written)
	// Of mallory's selectors the hub has a share of 4,096: those of 256 terms are 272 each, those of
	// 10 are 26.
	if n := metric(`spillway_dispatch_selector_evaluations_total{resource="configmaps"`); n > (2*events+10)*(4096/26+20) {
		t.Errorf("the hub asked %d selectors about %d events", n, 2*events)
	}
	if n := metric("spillway_dispatch_lane_selector_evaluations_total"); n == 0 {
		t.Error("no lane was used")
	}
	process.Awaiting(t, "everything to be dispatched", func(ctx context.Context) error {
		for _, name := range []string{"spillway_dispatch_lag_events", "spillway_dispatch_lane_lag_events"} {
			if n, err := process.ReadMetric(ctx, proxy.Metrics, name); err != nil || n != 0 {
				return fmt.Errorf("%s is %d, %w", name, n, err)
			}
		}
		return nil
	})
	end()
	process.Awaiting(t, "what the selectors weigh to be given back", func(ctx context.Context) error {
		for _, name := range []string{`spillway_flowcontrol_in_use{limit="selector_terms"`, "spillway_selector_bytes",
			"spillway_dispatch_lanes"} {
			if n, err := process.ReadMetric(ctx, proxy.Metrics, name); err != nil || n != 0 {
				return fmt.Errorf("%s is %d, %w", name, n, err)
			}
		}
		return nil
	})
}

// watch begins a watch.
func watch(ctx context.Context, t *testing.T, get func(context.Context, string) (*http.Response, error),
	url string) *http.Response {
	t.Helper()
	response, err := get(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d", url, response.StatusCode)
	}
	return response
}

// besiege opens the watches of all attacks, and reads those that are admitted, until end is called.
// codes is how each was answered.
func besiege(ctx context.Context, t *testing.T, get func(context.Context, string) (*http.Response, error),
	base string) (codes map[int]int, end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	var reading sync.WaitGroup
	codes = map[int]int{}
	for kind, a := range attacks {
		for i := range a.watches {
			if a.equal {
				i = 0
			}
			response, err := get(ctx, base+"/api/v1/watch/namespaces/a/configmaps?resourceVersion=0&labelSelector="+
				selector(a.terms, 1000*kind+i))
			if err != nil {
				t.Fatal(err)
			}
			codes[response.StatusCode]++
			if response.StatusCode != http.StatusOK {
				var status metav1.Status
				if err := json.NewDecoder(response.Body).Decode(&status); err != nil ||
					!strings.Contains(status.Message, "--max-selector-terms-per-user") {
					t.Errorf("%d: %+v, %v", response.StatusCode, status, err)
				}
				_ = response.Body.Close()
				continue
			}
			reading.Go(func() {
				_, _ = io.Copy(io.Discard, response.Body) // until it is cancelled
				_ = response.Body.Close()
			})
		}
	}
	return codes, func() { stop(); reading.Wait() }
}

// write creates ConfigMaps in both namespaces, and returns the names of those in b, in order.
func write(t *testing.T, c *authcluster.Cluster, n int) (names []string) {
	t.Helper()
	for i := range n {
		for _, namespace := range []string{"a", "b"} {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("written-%03d", i),
				Labels: map[string]string{"app": "x"}}}
			if _, err := c.Admin.CoreV1().ConfigMaps(namespace).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		names = append(names, fmt.Sprintf("written-%03d", i))
	}
	return names
}

// heard reads a watch until it has sent all events, in their order.
func heard(t *testing.T, body io.Reader, names []string) {
	t.Helper()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for len(names) > 0 {
		if !lines.Scan() {
			t.Fatalf("the watch ended before %s: %v", names[0], lines.Err())
		}
		var e struct {
			Type   string
			Object struct{ Metadata metav1.ObjectMeta }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		name := e.Object.Metadata.Name
		if e.Type != "ADDED" || e.Object.Metadata.Namespace != "b" {
			t.Fatalf("%s %s/%s", e.Type, e.Object.Metadata.Namespace, name)
		}
		if strings.HasPrefix(name, "written-") {
			if name != names[0] {
				t.Fatalf("%s came before %s", name, names[0])
			}
			names = names[1:]
		}
	}
}
