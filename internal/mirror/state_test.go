package mirror

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/fakeapiserver"
	"spillway/internal/mirror/states"
)

// kindOf is the state of a resource, "" if there is none.
func (s *Set) kindOf(resource string) states.Kind {
	for _, one := range s.states() {
		if one.resource == resource {
			return one.State().Kind()
		}
	}
	return ""
}

func (s *Set) awaitKind(t *testing.T, resource string, kind states.Kind) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s to be %s", resource, kind), func() bool { return s.kindOf(resource) == kind })
}

const (
	widgetPath   = "/apis/example.com/v1/widgets"
	initializing = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
		`"message":"storage is (re)initializing",` +
		`"reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}`
)

// answering answers with a JSON document.
func answering(code int, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, text)
	})
}

// A kind that the API server refuses while it answers others passes through, and nothing calls the
// API server away.
func TestBrokenKindPassesThroughWhileItsWatchesGoOn(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	up.Create(fakeapiserver.Widgets, "n", "old")
	core, logs := observer.New(zap.InfoLevel)
	m := mirroringTo(t, up, zap.New(core), nil, "widgets.example.com", "configmaps")
	m.awaitReady(t, fakeapiserver.Widgets)
	source := m.Find(fakeapiserver.Widgets)
	cursor := watching(t, source)
	up.Handle(widgetPath, answering(http.StatusTooManyRequests, initializing))
	up.CutWatches(fakeapiserver.Widgets)
	m.awaitKind(t, "widgets.example.com", states.KindRefused)
	if m.Find(fakeapiserver.Widgets) != nil {
		t.Error("what upstream refuses is answered from memory")
	}
	if source.Resource().IsClosed() || expired(cursor) != nil {
		t.Error("a watch ended that can go on")
	}
	if detail, err := m.UpstreamReady(time.Nanosecond)(); detail != "" || err != nil {
		t.Errorf("of an API server that answers: %q, %v", detail, err)
	}
	if s := m.Find(fakeapiserver.ConfigMaps); s == nil {
		t.Error("another kind is not served")
	}
	lines := strings.Join(m.Describe(), "\n")
	if !strings.Contains(lines, "[!]mirror widgets.example.com refused for") ||
		!strings.Contains(lines, "storage is (re)initializing") ||
		!strings.Contains(lines, "[+]mirror configmaps ok: synced") {
		t.Errorf("it says:\n%s", lines)
	}
	refused := logs.FilterMessageSnippet("not mirrored for now").All()
	if len(refused) != 1 || refused[0].ContextMap()["resource"] != "widgets.example.com" {
		t.Errorf("%d lines: %v", len(refused), refused)
	}
	up.Handle(widgetPath, nil)
	up.Create(fakeapiserver.Widgets, "n", "new")
	m.awaitKind(t, "widgets.example.com", states.KindSynced)
	eventually(t, "the same mirror to go on", func() bool {
		return m.Find(fakeapiserver.Widgets) == source && source.Resource().Snapshot().Len() == 2
	})
	if err := expired(cursor); err != nil {
		t.Errorf("the watch ended: %v", err)
	}
}

// An API server that has too much to do refuses no kind: to pass requests on would give it more.
func TestBusyApiserverIsServedForFromMemory(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	m := mirroring(t, up, nil, "widgets.example.com")
	m.awaitReady(t, fakeapiserver.Widgets)
	source := m.Find(fakeapiserver.Widgets)
	up.Handle(widgetPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	}))
	up.CutWatches(fakeapiserver.Widgets)
	eventually(t, "the state to be old", func() bool {
		age, _ := source.Age()
		return age > staleThreshold+time.Second
	})
	if _, away := source.Age(); away || m.kindOf("widgets.example.com") != states.KindResuming ||
		m.Find(fakeapiserver.Widgets) != source {
		t.Errorf("away %v, %s", away, m.kindOf("widgets.example.com"))
	}
}

// stateMetric is the state that spillway_mirror_state shows of a resource.
func stateMetric(t *testing.T, m *Set, resource string) (state string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(m))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			if f.GetName() == "spillway_mirror_state" && one.GetLabel()[0].GetValue() == resource &&
				one.GetGauge().GetValue() == 1 {
				state += one.GetLabel()[1].GetValue()
			}
		}
	}
	return state
}

// A name that is missing has the labels that its resource gets, and two names of one have one
// series.
func TestMissingNamesHaveTheLabelsOfTheirResource(t *testing.T) {
	for name, want := range map[string][2]string{
		"widgets":                       {"widgets", ""},
		"widgets.example.com":           {"widgets.example.com", ""},
		"widgets.v1.example.com":        {"widgets.example.com", "v1"},
		"widgets.v2beta1.a.example.com": {"widgets.a.example.com", "v2beta1"},
		"pods.v2.":                      {"pods", "v2"},
		"":                              {"", ""},
	} {
		if resource, version := labelsOf(name); [2]string{resource, version} != want {
			t.Errorf("%s: %q %q", name, resource, version)
		}
	}
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond})
	t.Cleanup(up.Close)
	m := mirroringTo(t, up, zap.NewNop(), nil, "configmaps", "gizmos.v1.example.com", "gizmos.v1.example.com.")
	if s := stateMetric(t, m, "gizmos.example.com"); s != "refused" {
		t.Errorf("spillway_mirror_state is %s", s)
	}
}

// An upstream that is away is logged once, and once more when it answers; it is no new reason for
// what it refused before.
func TestOutageHasOneLine(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond})
	t.Cleanup(up.Close)
	m := mirroringTo(t, up, zap.New(core), nil, "configmaps", "pods", "gizmos.example.com")
	m.awaitReady(t, fakeapiserver.Pods)
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	up.Down()
	said := func(text string) func() bool {
		return func() bool { return logs.FilterMessageSnippet(text).Len() > 0 }
	}
	eventually(t, "the outage to be logged", said("the API server does not answer"))
	line := logs.FilterMessageSnippet("the API server does not answer").All()[0].ContextMap()
	if why, _ := line["error"].(string); line["oldMirrors"] != int64(2) || !strings.Contains(why, "connection refused") {
		t.Errorf("%v", line)
	}
	for _, one := range m.states() {
		if reason := one.State().Cause().Text; one.resource == "gizmos.example.com" &&
			!strings.Contains(reason, "the API server serves no resource") {
			t.Errorf("it is refused for %q", reason)
		}
	}
	if err := up.Up(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its end to be logged", said("the API server answers again"))
	if n := logs.FilterMessageSnippet("the API server").Len(); n != 2 {
		t.Errorf("%d lines", n)
	}
}

// One missing, one delegated to a server that is down, one that upstream refuses, one malformed
// once: the others are served at once, and each of these soon after it is good.
func TestNamedResourcesThatAreNotThereHoldNothingUp(t *testing.T) {
	t.Parallel()
	gadgets := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "gadgets"}
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond, Resources: []fakeapiserver.Resource{
		{GVR: gadgets, Kind: "Gadget", Namespaced: true}, {GVR: jobs, Kind: "Job", Namespaced: true},
		{GVR: apiServices, Kind: "APIService"},
	}})
	t.Cleanup(up.Close)
	hide := func(group string) { // as if nothing served it
		up.Handle("/apis/"+group+"/", answering(http.StatusNotFound, "{}"))
	}
	up.Handle("/apis/example.org/v1", answering(http.StatusServiceUnavailable, "{}"))
	hide("batch")
	var malformed atomic.Bool
	malformed.Store(true)
	up.Handle("/api/v1/pods", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if malformed.Swap(false) {
			answering(http.StatusOK, `{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"soon"}}}`+
				"\n").ServeHTTP(w, r)
			return
		}
		up.Handle("/api/v1/pods", nil)
		up.ServeHTTP(w, r)
	}))
	up.Handle("/api/v1/nodes", refusing(http.StatusForbidden))
	core, logs := observer.New(zap.InfoLevel)
	m := mirroringTo(t, up, zap.New(core), nil, "configmaps", "gadgets.example.org", "jobs.batch", "nodes", "pods")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	m.awaitReady(t, fakeapiserver.Pods)
	m.awaitKind(t, "nodes", states.KindRefused)
	for _, name := range []string{"gadgets.example.org", "jobs.batch"} {
		if kind := m.kindOf(name); kind != states.KindRefused {
			t.Errorf("%s is %q", name, kind)
		}
	}
	if _, err := m.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	reasons := map[string]string{}
	for _, line := range logs.FilterMessageSnippet("not mirrored for now").All() {
		reasons[fmt.Sprint(line.ContextMap()["resource"])] = fmt.Sprint(line.ContextMap()["reason"])
	}
	for name, reason := range map[string]string{
		"gadgets.example.org": `the API server serves no resource "gadgets.example.org"`,
		"jobs.batch":          `the API server serves no resource "jobs.batch"`,
		"nodes": `give Spillway a ClusterRole with apiGroups [""], resources ["nodes"], verbs [get, list, ` +
			`watch]`,
	} {
		if !strings.Contains(reasons[name], reason) {
			t.Errorf("the log says of %s: %q", name, reasons[name])
		}
		if s := stateMetric(t, m, name); s != "refused" {
			t.Errorf("spillway_mirror_state of %s is %s", name, s)
		}
	}
	if s := stateMetric(t, m, "configmaps"); s != "synced" {
		t.Errorf("spillway_mirror_state of configmaps is %s", s)
	}
	up.Handle("/api/v1/nodes", nil)
	m.awaitKind(t, "nodes", states.KindSynced)
	up.Handle("/apis/example.org/v1", nil)
	m.awaitKind(t, "gadgets.example.org", states.KindSynced)
	up.Handle("/apis/batch/", nil)
	m.awaitKind(t, "jobs.batch", states.KindSynced)
	for _, gvr := range []schema.GroupVersionResource{fakeapiserver.Nodes, gadgets, jobs} {
		m.awaitReady(t, gvr)
	}
	if names := m.names(); names != "configmaps gadgets.example.org jobs.batch nodes pods" {
		t.Errorf("mirrored: %s", names)
	}
}

// With the shipped pauses, however long it was refused, the next attempt is less than 30 s away;
// what costs a complete state waits longer each time.
func TestShippedPausesKeepTheirPromise(t *testing.T) {
	s := &mirrorState{retry: states.Pace{First: minRetryPause}}
	longest := time.Duration(0)
	for range 100 {
		now := time.Now()
		longest = max(longest, s.planRetryLocked(states.WhyForbidden).Sub(now))
	}
	if longest > 25*time.Second || longest < maxRetryPause*4/5 {
		t.Errorf("up to %v", longest)
	}
	s = &mirrorState{retry: states.Pace{First: minRetryPause}}
	if d := time.Until(s.planRetryLocked(states.WhyMalformed)); d > 3*time.Second {
		t.Errorf("malformed once is tried again after %v", d)
	}
}

// A namespaced account: what is refused is not asked about each time that a client asks for it.
func TestDeniedKindIsRetriedAtGrowingPauses(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	var denied atomic.Int64
	up.Handle("/api/v1/pods", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		denied.Add(1)
		refusing(http.StatusForbidden).ServeHTTP(w, r)
	}))
	core, logs := observer.New(zap.InfoLevel)
	m := mirroringTo(t, up, zap.New(core), nil, "*")
	m.firstRetryPause = time.Hour
	for range 1000 {
		m.Find(fakeapiserver.Pods)
		time.Sleep(time.Millisecond)
	}
	m.awaitKind(t, "pods", states.KindRefused)
	if n := denied.Load(); n != 2 { // a watch-list and a LIST
		t.Errorf("denied %d times", n)
	}
	if n := logs.FilterMessageSnippet("not mirrored for now").Len(); n != 1 {
		t.Errorf("%d lines", n)
	}
}

// A proxy in front of the API server drops bookmarks: the mirror is synced, says so, and counts it.
func TestDroppedBookmarksAreAStateALineAndACount(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	target, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(fakeapiserver.Bookmarkless(target, nil, fakeapiserver.DropInitial))
	t.Cleanup(proxy.Close)
	core, logs := observer.New(zap.InfoLevel)
	m := mirroringAt(t, up, proxy.URL, zap.New(core), "configmaps")
	m.awaitKind(t, "configmaps", states.KindSynced)
	if lines := m.Describe(); len(lines) != 1 ||
		!strings.Contains(lines[0], "a proxy in front of the API server may drop bookmarks") {
		t.Errorf("it says %q", lines)
	}
	if n := logs.FilterMessage("the mirror falls back to LIST and WATCH").Len(); n != 1 {
		t.Errorf("%d lines", n)
	}
	text := gathered(t, m)
	for _, want := range []string{
		`spillway_mirror_state{resource="configmaps",state="synced",version="v1"} 1`,
		`spillway_mirror_state{resource="configmaps",state="falling_back",version="v1"} 0`,
		`spillway_mirror_transitions_total{cause="no_initial_events_end",state="falling_back"} 1`,
	} {
		if !slices.Contains(strings.Split(text, "\n"), want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// A slot that is wanting has a line and a count.
func TestWantOfASlotIsSaidAndCounted(t *testing.T) {
	up := newUpstream(t)
	core, logs := observer.New(zap.InfoLevel)
	m := mirroringTo(t, up, zap.New(core), func(o *SetOptions) { o.MaxOnDemand = 1 }, "*")
	m.awaitReady(t, fakeapiserver.Pods)
	for range 3 {
		if m.Find(fakeapiserver.ConfigMaps) != nil {
			t.Fatal("mirrored beyond --max-resources")
		}
	}
	lines := logs.FilterMessageSnippet("--max-resources").All()
	if len(lines) != 1 || lines[0].ContextMap()["resource"] != "configmaps" {
		t.Errorf("it says %v", lines)
	}
	if text := gathered(t, m); !strings.Contains(text, "spillway_mirror_limit_exceeded_total 3\n") {
		t.Error("it is not counted")
	}
}

// A mirror that succeeds while it is found out whether the API server serves others is not left
// refused: nothing would tell of the success again.
func TestJudgementThatComesTooLateChangesNothing(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, nil, "configmaps")
	one := m.awaitComparable(t)
	for _, serves := range []bool{true, false} {
		one.refuseOrInterrupt(states.Cause{Why: states.WhyRefused, Text: "late"}, serves)
		if kind := m.kindOf("configmaps"); kind != states.KindSynced {
			t.Errorf("serves %v: %s", serves, kind)
		}
	}
}
