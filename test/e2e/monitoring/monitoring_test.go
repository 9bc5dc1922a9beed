package monitoring

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const configMaps = "/api/v1/namespaces/default/configmaps"

// Every series of the dashboard and the alerts exists, in a proxy that serves clients of all sorts,
// and so does every metric in the reference, as it is described there.
func TestEverySeriesQueriedExists(t *testing.T) {
	w := newWorld(t)
	w.traffic()
	s := scraped(t, w.proxy.Metrics)
	queries := append(dashboardQueries(t), alertQueries(t)...)
	if len(queries) < 80 {
		t.Fatalf("only %d queries were found", len(queries))
	}
	for _, q := range queries {
		for _, problem := range q.unresolved(s) {
			t.Errorf("%s asks for %s: there is none: %s", q.where, problem, q.text)
		}
	}
	for _, problem := range knows(reference(t), s) {
		t.Errorf("docs/metrics.md: %s", problem)
	}
	promtool(t, s.text, "check", "metrics")
}

// What is not there is found to be missing, so that the test above can fail.
func TestMissingSeriesIsReported(t *testing.T) {
	s := parsed(t, []byte("# TYPE spillway_a gauge\nspillway_a{resource=\"pods\"} 1\n# TYPE spillway_b "+
		"counter\nspillway_b 1\n"))
	for text, problems := range map[string]int{
		`sum by (resource) (spillway_a)`:               0,
		`max(spillway_a{resource=~"po.*"}) > 0`:        0,
		`sum by (reason) (spillway_a)`:                 1,
		`sum without (reason) (spillway_a)`:            1,
		`sum without (resource) (spillway_a)`:          0,
		`rate(spillway_c[5m])`:                         1,
		`spillway_a{resource="nodes"}`:                 1,
		`sum(spillway_c) / sum by (code) (spillway_d)`: 3,
		`sum(`: 1,
	} {
		if got := (query{text: text}).unresolved(s); len(got) != problems {
			t.Errorf("%s: %q, want %d", text, got, problems)
		}
	}
	if got := (query{text: "sum by (resource) (spillway_a)", legend: "{{resource}} {{version}}"}).unresolved(s); len(
		got) != 1 {
		t.Errorf("a legend that names another label: %q", got)
	}
	if got := knows(map[string]documentedMetric{"spillway_a": {kind: "counter"}}, s); len(got) != 3 {
		t.Errorf("a reference that is wrong about the type and the labels of one and lacks the other: %q", got)
	}
}

// world is a control plane and a proxy in front of it with something of everything, and a client
// whose token it is.
type world struct {
	t     *testing.T
	proxy *process.Proxy
	token string
	past  string // a resourceVersion from before the proxy began
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	must(t, err)
	t.Cleanup(cp.Stop)
	past, err := cp.Kubectl(t.Context(), "create", "configmap", "before", "--output=jsonpath={.metadata.resourceVersion}")
	must(t, err)
	_, err = cp.Kubectl(t.Context(), "create", "configmap", "after")
	must(t, err)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	must(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n"), 0o600))
	proxy := process.StartProxy(t, process.BuildProxy(t), "--audit-policy-file="+policy, "--audit-log-path="+policy+".log",
		"--kubeconfig="+cp.Kubeconfig(controlplane.Admin), "--resources=configmaps,pods",
		"--memory-budget=2Gi", "--authorization-local-rbac")
	return &world{t: t, proxy: proxy, token: cp.Config(controlplane.Admin).BearerToken, past: past}
}

// traffic has clients do everything once.
func (w *world) traffic() {
	for path, code := range map[string]int{
		configMaps + "?resourceVersion=0":        http.StatusOK, // from memory
		configMaps + "/before?resourceVersion=0": http.StatusOK,
		// refused in upstream's words
		configMaps + "?resourceVersion=abc&resourceVersionMatch=abc": http.StatusUnprocessableEntity,
		configMaps:                          http.StatusOK, // the most recent state
		"/version":                          http.StatusOK, // passes through
		"/api/v1/pods?resourceVersion=0":    http.StatusOK,
		configMaps + "/before":              http.StatusOK,
		"/api/v1/nodes?resourceVersion=0":   http.StatusOK,
		configMaps + "/nothing?watch=false": http.StatusNotFound,
	} {
		a := w.send(http.MethodGet, path, "")
		if a.StatusCode != code {
			w.t.Errorf("%s: %s", path, a.Status)
		}
		_, _ = io.Copy(io.Discard, a.Body)
	}
	w.watch("&resourceVersion="+w.past, "after") // from upstream, because the proxy was not there
	live := w.send(http.MethodGet, configMaps+"?watch=1&allowWatchBookmarks=true&resourceVersion=0&timeoutSeconds=60", "")
	created := w.send(http.MethodPost, configMaps, `{"metadata":{"name":"live"}}`)
	if created.StatusCode != http.StatusCreated {
		w.t.Fatal(created.Status)
	}
	w.await(live, "live")
	process.Awaiting(w.t, "rights to be proven", func(context.Context) error {
		if process.Metric(w.t, w.proxy.Metrics, `spillway_rbac_freshness_checks_total`) == 0 {
			return fmt.Errorf("none yet")
		}
		return nil
	})
}

// watch watches until it receives a config map of that name.
func (w *world) watch(options, name string) {
	w.t.Helper()
	w.await(w.send(http.MethodGet, configMaps+"?watch=1&timeoutSeconds=60"+options, ""), name)
}

func (w *world) await(watch *http.Response, name string) {
	w.t.Helper()
	lines := bufio.NewScanner(watch.Body)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"name":"`+name+`"`) {
			return
		}
	}
	w.t.Fatalf("%s: the watch ended without a word of %s: %v", watch.Status, name, lines.Err())
}

func (w *world) send(method, path, body string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.proxy.Plain+path, strings.NewReader(body))
	must(w.t, err)
	r.Header.Set("Authorization", "Bearer "+w.token)
	r.Header.Set("Content-Type", "application/json")
	a, err := http.DefaultClient.Do(r)
	must(w.t, err)
	w.t.Cleanup(func() { _ = a.Body.Close() })
	return a
}
