package mirrorstate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/test/framework/process"
)

// A proxy that drops the bookmarks of watch-lists: synced within 30 s, one line, a metric.
func TestSyncedBehindAProxyThatDropsBookmarks(t *testing.T) {
	w := newWorld(t)
	w.allow("read", "*")
	for name, what := range map[string]fakeapiserver.BookmarkFault{"end marks": fakeapiserver.DropEndMarks,
		"all": fakeapiserver.DropBookmarks} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, cp: w.cp, admin: w.admin, built: w.built}
			proxy := w.before(true, func(target *url.URL, transport http.RoundTripper) http.Handler {
				return fakeapiserver.Bookmarkless(target, transport, what)
			})
			w.launch(proxy, "--resources=configmaps,secrets")
			w.proxy.AwaitReady(t)
			w.keeps("behind a proxy that drops "+name, time.Since(w.begun))
			for _, path := range []string{"/api/v1/configmaps?resourceVersion=0", "/api/v1/configmaps"} {
				if code, body := w.get(w.proxy.Plain + path); code != http.StatusOK || !strings.Contains(body,
					"kube-root-ca.crt") && !strings.Contains(body, "extension-apiserver") {
					t.Errorf("%s: %d %.200s", path, code, body)
				}
			}
			if n := process.Metric(t, w.proxy.Metrics,
				`spillway_mirror_transitions_total{cause="no_initial_events_end",state="falling_back"}`); n != 2 {
				t.Errorf("%d mirrors fell back, by the metric", n)
			}
			if n := w.lines("falls back to LIST and WATCH"); n != 1 {
				t.Errorf("%d lines for two mirrors", n)
			}
			if text := w.verbose(); !strings.Contains(text, "[+]mirror configmaps ok: synced") ||
				!strings.Contains(text, "may drop bookmarks") {
				t.Errorf("it says:\n%s", text)
			}
		})
	}
}

// lines is how many lines of the log contain something.
func (w *world) lines(part string) int {
	n := 0
	for line := range bytes.Lines(w.proxy.Log.Text()) {
		if bytes.Contains(line, []byte(part)) {
			n++
		}
	}
	return n
}

// definition is a CRD of kind, whose conversion may be by a webhook at an address.
func definition(group, plural, kind, webhook string) string {
	conversion := `"conversion":{"strategy":"None"}`
	if webhook != "" {
		conversion = fmt.Sprintf(
			`"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":%q}}}`,
			webhook)
	}
	version := func(name string, stored bool) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%v,"schema":{"openAPIV3Schema":`+
			`{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`, name, stored)
	}
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%s.%s"},
		"spec":{"group":%q,"scope":"Namespaced","names":{"plural":%q,"singular":%q,"kind":%q},%s,"versions":[%s,%s]}}`,
		plural, group, group, plural, strings.ToLower(kind), kind, conversion, version("v1", true), version("v2", false))
}

// One named resource is missing, one is delegated to a server that is down, one cannot be
// converted, one is forbidden: the others are served at once, and each of these within 30 s of its
// becoming good.
func TestMissingAndBrokenKindsHoldNothingUp(t *testing.T) {
	w := newWorld(t)
	w.allow("read", "configmaps", "gadgets", "gizmos", "widgets", "customresourcedefinitions", "apiservices")
	w.kubectl(definition("broken.example.com", "widgets", "Widget", ""), "create", "-f", "-")
	w.kubectl("", "wait", "--for=condition=Established", "crd/widgets.broken.example.com")
	w.kubectl(`{"apiVersion":"broken.example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"default"}}`,
		"create", "-f", "-")
	w.kubectl(definition("broken.example.com", "widgets", "Widget", nowhere(t)), "apply", "--server-side",
		"--force-conflicts", "-f", "-")
	w.kubectl(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.delegated.example.com"},
		"spec":{"group":"delegated.example.com","version":"v1","groupPriorityMinimum":100,"versionPriority":100,"insecureSkipTLSVerify":true,
		"service":{"namespace":"default","name":"nowhere"}}}`, "create", "-f", "-")
	const broken = "/apis/broken.example.com/v2/widgets"
	process.Awaiting(t, "the API server to refuse what it cannot convert", refused(w, w.cp.URL()+broken))

	w.launch(nil, "--resources=configmaps,gadgets.missing.example.com,gizmos.delegated.example.com,"+
		"widgets.v2.broken.example.com,secrets")
	w.proxy.AwaitReady(t)
	w.keeps("the others", time.Since(w.begun))
	w.awaitState("configmaps", "synced")
	for _, name := range []string{"gadgets.missing.example.com", "gizmos.delegated.example.com",
		"widgets.broken.example.com", "secrets"} {
		w.awaitState(name, "refused")
	}
	if text := w.verbose(); strings.Contains(text, "unreachable") ||
		!strings.Contains(text, "[!]mirror widgets.broken.example.com refused") ||
		!strings.Contains(text, `the API server serves no resource "gadgets.missing.example.com"`) {
		t.Errorf("it says:\n%s", text)
	}
	if code, body := w.get(w.proxy.Plain + broken + "?resourceVersion=0"); code < 400 || !strings.Contains(body,
		`"kind":"Status"`) {
		t.Errorf("what the API server refuses is answered %d %s", code, body)
	}
	if code, _ := w.get(w.proxy.Plain + "/apis/missing.example.com/v1/gadgets"); code != http.StatusNotFound {
		t.Errorf("what is missing is answered %d", code)
	}

	w.kubectl(definition("missing.example.com", "gadgets", "Gadget", ""), "create", "-f", "-")
	w.kubectl("", "wait", "--for=condition=Established", "crd/gadgets.missing.example.com")
	w.keeps("missing", w.awaitState("gadgets.missing.example.com", "synced"))

	w.kubectl("", "delete", "apiservice", "v1.delegated.example.com")
	w.kubectl(definition("delegated.example.com", "gizmos", "Gizmo", ""), "create", "-f", "-")
	w.kubectl("", "wait", "--for=condition=Established", "crd/gizmos.delegated.example.com")
	w.keeps("delegated", w.awaitState("gizmos.delegated.example.com", "synced"))

	w.allowIn("secrets", "", "secrets")
	w.keeps("forbidden", w.awaitState("secrets", "synced"))

	w.kubectl(definition("broken.example.com", "widgets", "Widget", ""), "apply", "--server-side", "--force-conflicts",
		"-f", "-")
	w.keeps("broken", w.awaitState("widgets.broken.example.com", "synced"))
	if code, body := w.get(w.proxy.Plain + broken + "?resourceVersion=0"); code != http.StatusOK ||
		!strings.Contains(body, `"name":"a"`) {
		t.Errorf("once it is mended: %d %s", code, body)
	}
}

// The promise holds however long a resource was missing or forbidden, and without a right to see
// what announces its appearance.
func TestWhatWasMissingForLongIsMirroredWithinThePromise(t *testing.T) {
	if testing.Short() {
		t.Skip("takes three minutes")
	}
	w := newWorld(t)
	w.allow("read", "configmaps", "gadgets", "widgets")
	w.kubectl(definition("broken.example.com", "widgets", "Widget", ""), "create", "-f", "-")
	w.kubectl("", "wait", "--for=condition=Established", "crd/widgets.broken.example.com")
	w.kubectl(`{"apiVersion":"broken.example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"default"}}`,
		"create", "-f", "-")
	w.kubectl(definition("broken.example.com", "widgets", "Widget", nowhere(t)), "apply", "--server-side",
		"--force-conflicts", "-f", "-")
	process.Awaiting(t, "the API server to refuse what it cannot convert",
		refused(w, w.cp.URL()+"/apis/broken.example.com/v2/widgets"))
	w.launch(nil, "--resources=configmaps,gadgets.missing.example.com,widgets.v2.broken.example.com,secrets")
	w.proxy.AwaitReady(t)
	time.Sleep(2 * time.Minute) // the pauses have grown to their longest
	lines := w.lines("not mirrored for now")
	w.kubectl(definition("missing.example.com", "gadgets", "Gadget", ""), "create", "-f", "-")
	w.kubectl("", "wait", "--for=condition=Established", "crd/gadgets.missing.example.com")
	begin := time.Now()
	w.allowIn("secrets", "", "secrets")
	w.kubectl(definition("broken.example.com", "widgets", "Widget", ""), "apply", "--server-side", "--force-conflicts",
		"-f", "-")
	var took []time.Duration
	for _, name := range []string{"gadgets.missing.example.com", "secrets", "widgets.broken.example.com"} {
		w.awaitState(name, "synced")
		took = append(took, time.Since(begin))
		w.keeps(name, time.Since(begin))
	}
	t.Logf("after %v; %d lines in the two minutes before", took, lines)
	if lines > 6 {
		t.Errorf("%d lines about what is not mirrored", lines)
	}
}

// A kind breaks while it is mirrored: clients get what the API server answers, and nothing says
// that it is unreachable.
func TestKindThatBreaksIsNoOutage(t *testing.T) {
	w := newWorld(t)
	w.allow("read", "configmaps", "widgets", "customresourcedefinitions", "apiservices")
	w.kubectl(definition("broken.example.com", "widgets", "Widget", ""), "create", "-f", "-")
	w.kubectl("", "wait", "--for=condition=Established", "crd/widgets.broken.example.com")
	w.kubectl(`{"apiVersion":"broken.example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"default"}}`,
		"create", "-f", "-")
	w.launch(nil, "--resources=configmaps,widgets.v2.broken.example.com")
	w.proxy.AwaitReady(t)
	w.awaitState("widgets.broken.example.com", "synced")
	w.kubectl(definition("broken.example.com", "widgets", "Widget", nowhere(t)), "apply", "--server-side",
		"--force-conflicts", "-f", "-")
	const path = "/apis/broken.example.com/v2/widgets?resourceVersion=0"
	process.Awaiting(t, "the API server to refuse it", refused(w, w.cp.URL()+path))
	w.awaitState("widgets.broken.example.com", "refused")
	process.Awaiting(t, "the proxy to answer as the API server does", refused(w, w.proxy.Plain+path))
	w.awaitState("configmaps", "synced")
	if text := w.verbose(); strings.Contains(text, "unreachable") || !strings.Contains(text, "[+]upstream ok\n") {
		t.Errorf("it says:\n%s", text)
	}
	w.kubectl(definition("broken.example.com", "widgets", "Widget", ""), "apply", "--server-side", "--force-conflicts",
		"-f", "-")
	w.keeps("broken", w.awaitState("widgets.broken.example.com", "synced"))
}

// A proxy that cuts watches which have been idle for 20 s, and ten mirrors, for two minutes: at
// most 6 lines a minute, and at most one question for each cut beside the new watch.
func TestProxyThatCutsIdleWatchesMakesLittleNoise(t *testing.T) {
	if testing.Short() {
		t.Skip("takes three minutes")
	}
	const (
		idle    = 20 * time.Second
		minutes = 2
	)
	w := newWorld(t)
	w.allow("read", "*")
	var watches, others atomic.Int64
	front := w.before(true, func(target *url.URL, transport http.RoundTripper) http.Handler {
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.Transport, proxy.FlushInterval = transport, -1
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			query := r.URL.Query()
			switch {
			case query.Get("watch") != "" && query.Get("timeoutSeconds") != "3":
				watches.Add(1)
				ctx, cut := context.WithCancel(r.Context())
				defer cut()
				timer := time.AfterFunc(idle, cut)
				proxy.ServeHTTP(&cutter{rw, timer, idle}, r.WithContext(ctx))
				return
			}
			others.Add(1)
			proxy.ServeHTTP(rw, r)
		})
	})
	w.launch(front, "--resources=configmaps,secrets,services,pods,nodes,namespaces,serviceaccounts,"+
		"deployments.apps,daemonsets.apps,replicasets.apps",
		"--consistency-check-period=0s")
	w.proxy.AwaitReady(t)
	time.Sleep(idle) // the requests at the start do not count
	before, cuts, lines := others.Load(), watches.Load(), bytes.Count(w.proxy.Log.Text(), []byte("\n"))
	time.Sleep(minutes * time.Minute)
	asked, cut, said := others.Load()-before, watches.Load()-cuts, bytes.Count(w.proxy.Log.Text(), []byte("\n"))-lines
	baseline := int64(minutes * 60 / 15 * 3) // each 15 s the version, and the groups of the mirrors
	t.Logf("%d watches were cut, %d other requests, %d of them on a clock, %d lines in %d minutes", cut, asked,
		baseline, said, minutes)
	if cut < 30 {
		t.Errorf("only %d watches were cut", cut)
	}
	if asked-baseline > cut {
		t.Errorf("%d questions for %d cuts", asked-baseline, cut)
	}
	if said > 6*minutes {
		t.Errorf("%d lines in %d minutes", said, minutes)
	}
}

// cutter puts off the end of an answer for as long as something is sent.
type cutter struct {
	http.ResponseWriter
	timer *time.Timer
	idle  time.Duration
}

func (c *cutter) Write(p []byte) (int, error) {
	c.timer.Reset(c.idle)
	return c.ResponseWriter.Write(p)
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// A sidecar of an ordinary account may see neither definitions nor API services: that is two lines,
// and no warning.
func TestOrdinaryAccountIsNotWarned(t *testing.T) {
	w := newWorld(t)
	w.allowIn("read", "", "configmaps")
	w.launch(nil, "--resources=*,configmaps")
	w.proxy.AwaitReady(t)
	process.Awaiting(t, "both to be refused", func(ctx context.Context) error {
		if n := w.lines("cannot watch"); n < 2 {
			return fmt.Errorf("%d lines", n)
		}
		return nil
	})
	var warned []string
	for line := range bytes.Lines(w.proxy.Log.Text()) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal(line, &entry) == nil && entry.Level == "warn" && !strings.Contains(entry.Msg, "self") {
			warned = append(warned, string(line))
		}
	}
	if len(warned) > 0 {
		t.Errorf("%d warnings:\n%s", len(warned), strings.Join(warned, ""))
	}
}
