package serve

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/object"
)

var (
	podResource = object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)
	nodes       = object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "Node", false, true)
	namespaces  = object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "Namespace", false, true)
	deployments = object.NewResource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "Deployment", true, true)
	widgets     = object.NewResource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, "Widget", true, false,
		object.Field{Label: "spec.color", Path: []string{"spec", "color"}})
)

// fixed is a catalog that does not change.
type fixed map[schema.GroupVersionResource]*Source

func (f fixed) Find(gvr schema.GroupVersionResource) *Source { return f[gvr] }

// unreachable is an upstream that proves nothing.
type unreachable struct{}

func (unreachable) Begin(context.Context) (uint64, cache.Proof, error) {
	return 0, nil, errors.New("upstream is gone")
}

func (unreachable) State(context.Context) (uint64, map[string]uint64, error) {
	return 0, nil, errors.New("upstream is gone")
}

// keepAll keeps all history that a test can make.
var keepAll = cache.Limits{HistoryBytes: 1 << 30, HistoryMinAge: time.Hour}

// newSource is a source of one resource, complete through rv and with these objects.
func newSource(t testing.TB, info *object.Resource, prober cache.Prober, rv uint64, objects ...string) *Source {
	t.Helper()
	r := cache.New(info, keepAll, time.Now)
	if err := r.Replace(parsed(t, info, objects...), rv); err != nil {
		t.Fatal(err)
	}
	return &Source{Hub: fanout.NewHub(r), Fresh: cache.NewFreshness(r, prober)}
}

// parsed are objects named "namespace/name rv [label=value]…".
func parsed(t testing.TB, info *object.Resource, objects ...string) []*object.Object {
	t.Helper()
	var out []*object.Object
	for _, text := range objects {
		out = append(out, parsedOne(t, info, text))
	}
	return out
}

func parsedOne(t testing.TB, info *object.Resource, text string) *object.Object {
	t.Helper()
	words := strings.Fields(text)
	namespace, name, _ := strings.Cut(words[0], "/")
	meta := fmt.Sprintf(`"name":%q,"namespace":%q,"uid":%q,"resourceVersion":%q`, name, namespace, "uid-"+words[0], words[1])
	if !info.Namespaced {
		meta = fmt.Sprintf(`"name":%q,"uid":%q,"resourceVersion":%q`, words[0], "uid-"+words[0], words[1])
	}
	var pairs []string
	for _, label := range words[2:] {
		k, v, _ := strings.Cut(label, "=")
		pairs = append(pairs, fmt.Sprintf("%q:%q", k, v))
	}
	if len(pairs) > 0 {
		meta += `,"labels":{` + strings.Join(pairs, ",") + "}"
	}
	head := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,`, info.Kind, info.APIVersion())
	if !info.Builtin {
		head = fmt.Sprintf(`{"apiVersion":%q,"kind":%q,`, info.APIVersion(), info.Kind)
	}
	o, err := info.Parse([]byte(head + `"metadata":{` + meta + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// testPlanner plans for a catalog that is complete through 100.
func testPlanner(t testing.TB) *Planner {
	catalog := fixed{}
	for _, info := range []*object.Resource{podResource, nodes, namespaces, deployments, widgets} {
		catalog[info.GVR] = newSource(t, info, unreachable{}, 100)
	}
	return &Planner{Catalog: catalog, WatchTimeout: func() time.Duration { return 42 * time.Minute }}
}

// text is a plan in a few words.
func (p Plan) text() string {
	if p.Action == Upstream {
		return "upstream"
	}
	var b strings.Builder
	b.WriteString(p.Source.Resource().Info.String())
	if s := p.Selector; p.Get == nil && (s.Namespace != "" || s.Name != "") {
		b.WriteString(" in " + s.Namespace + "/" + s.Name)
	}
	switch {
	case p.Get != nil:
		b.WriteString(" get " + p.Get.Key)
	case p.List != nil:
		b.WriteString(" list " + p.List.text())
	case p.Watch != nil:
		b.WriteString(" watch " + p.Watch.text())
	}
	if p.Action == FromCacheProven {
		b.WriteString(" proven")
	}
	return b.String()
}

func (l *ListPlan) text() string {
	sign := ">="
	if l.Exact {
		sign = "="
	}
	text := sign + strconv.FormatUint(l.RV, 10)
	if l.Limit > 0 {
		text += " limit " + strconv.FormatInt(l.Limit, 10)
	}
	if l.Start != "" {
		text += fmt.Sprintf(" from %q", l.Start)
	}
	return text
}

func (w *WatchPlan) text() string {
	text := map[WatchStart]string{
		StateAny: "state", StateAtLeast: "state >=", StateConsistent: "state now", EventsFrom: "events >", EventsFromNow: "events now",
	}[w.Start]
	if w.RV > 0 {
		text += strconv.FormatUint(w.RV, 10)
	}
	if w.Bookmarks {
		text += " bookmarks"
	}
	return text + " " + w.Timeout.String()
}

const podsPath = "/api/v1/pods"

func TestPlanPaths(t *testing.T) {
	p := testPlanner(t)
	for _, c := range []struct{ rule, target, want string }{
		{"W-20", "/api/v1/pods?resourceVersion=0", "pods list >=0"},
		{"W-20", "/api/v1/namespaces/c1/pods?resourceVersion=0", "pods in c1/ list >=0"},
		{"W-20", "/apis/apps/v1/namespaces/c1/deployments?resourceVersion=0", "deployments.apps in c1/ list >=0"},
		{"W-20", "/apis/example.com/v1/widgets?resourceVersion=0", "widgets.example.com list >=0"},
		{"W-20", "/api/v1/namespaces/c1/pods/a?resourceVersion=0", "pods get c1/a"},
		{"W-20", "/api/v1/nodes/n1?resourceVersion=0", "nodes get n1"},
		{"W-20", "/api/v1/namespaces/c1?resourceVersion=0", "namespaces get c1"},
		{"W-20", "/api/v1/namespaces?resourceVersion=0", "namespaces list >=0"},
		{"W-20 status of a namespace", "/api/v1/namespaces/c1/status?resourceVersion=0", "upstream"},
		{"W-20 finalize of a namespace", "/api/v1/namespaces/c1/finalize?resourceVersion=0", "upstream"},
		{"W-20 subresource", "/api/v1/namespaces/c1/pods/a/log?resourceVersion=0", "upstream"},
		{"W-20 empty namespace", "/api/v1/namespaces//pods?resourceVersion=0", "upstream"},
		{"W-20 no namespace in the path of an object", "/api/v1/pods/a?resourceVersion=0", "upstream"},
		{"W-20 namespace of a cluster-scoped resource", "/api/v1/namespaces/c1/nodes?resourceVersion=0", "upstream"},
		{"W-20 not mirrored", "/api/v1/services?resourceVersion=0", "upstream"},
		{"W-234 per version", "/apis/apps/v1beta1/deployments?resourceVersion=0", "upstream"},
		{"W-21 trailing slash", "/api/v1/pods/?resourceVersion=0", "upstream"},
		{"W-21 double slash", "//api/v1/pods?resourceVersion=0", "upstream"},
		{"W-21 case", "/api/v1/Pods?resourceVersion=0", "upstream"},
		{"W-21 decoded before matching", "/api/v1/namespaces/c1/pods/%61?resourceVersion=0", "pods get c1/a"},
		{"W-21 slash in a segment", "/api/v1/namespaces/c1/pods/a%2Fb?resourceVersion=0", "upstream"},
		{"W-21 no resolution", "/api/v1/namespaces/c1/../c2/pods?resourceVersion=0", "upstream"},
		{"W-21 no resolution", "/api/v1/namespaces/%2e%2e/pods?resourceVersion=0", "upstream"},
		{"W-21 bad escape", "/api/v1/namespaces/c1/pods/%zz?resourceVersion=0", "upstream"},
		{"W-33 deprecated watches", "/api/v1/watch/pods?resourceVersion=0", "upstream"},
		{"W-33 deprecated watches", "/api/v1/watch/namespaces/c1/pods?resourceVersion=0", "upstream"},
		{"W-33", "/api/v1/watch?resourceVersion=0", "upstream"},
		{"D1 other paths", "/version?resourceVersion=0", "upstream"},
		{"D1 other paths", "/?resourceVersion=0", "upstream"},
		{"D1 other paths", "?resourceVersion=0", "upstream"},
		{"D1 other paths", "*", "upstream"},
		{"D1 discovery", "/api/v1?resourceVersion=0", "upstream"},
		{"D1 discovery", "/apis/apps/v1?resourceVersion=0", "upstream"},
		{"D1 absolute form", "http://x/api/v1/pods?resourceVersion=0", "upstream"},
	} {
		path, query, _ := strings.Cut(c.target, "?")
		if got := p.Plan(Request{Method: "GET", Path: path, RawQuery: query, Trusted: true}).text(); got != c.want {
			t.Errorf("%s: %s: got %q, want %q", c.rule, c.target, got, c.want)
		}
	}
}

func TestPlanRequests(t *testing.T) {
	p := testPlanner(t)
	good := Request{Method: "GET", Path: podsPath, RawQuery: "resourceVersion=0", Trusted: true}
	if got := p.Plan(good).text(); got != "pods list >=0" {
		t.Fatalf("got %q", got)
	}
	for rule, change := range map[string]func(*Request){
		"W-23 HEAD":                    func(r *Request) { r.Method = http.MethodHead },
		"W-23 POST":                    func(r *Request) { r.Method = http.MethodPost },
		"W-23 methods have a case":     func(r *Request) { r.Method = "get" },
		"D12 nobody we know":           func(r *Request) { r.Trusted = false },
		"W-119 another protocol":       func(r *Request) { r.Upgrade = true },
		"W-40 YAML":                    func(r *Request) { r.Accept = "application/yaml" },
		"W-46 tables":                  func(r *Request) { r.Accept = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json" },
		"W-9 pretty":                   func(r *Request) { r.RawQuery += "&pretty=true" },
		"W-9 curl":                     func(r *Request) { r.UserAgent = "curl/8.5.0" },
		"W-9 browsers":                 func(r *Request) { r.UserAgent = "Mozilla/5.0 (X11)" },
		"W-28 malformed timeout":       func(r *Request) { r.RawQuery += "&timeout=abc" },
		"sharded":                      func(r *Request) { r.RawQuery += "&shardSelector=x" },
		"W-26 limit":                   func(r *Request) { r.RawQuery += "&limit=abc" },
		"W-26 empty integer":           func(r *Request) { r.RawQuery += "&timeoutSeconds=" },
		"W-150 label selector":         func(r *Request) { r.RawQuery += "&labelSelector=x%20in%20(a" },
		"W-151 field selector":         func(r *Request) { r.RawQuery += "&fieldSelector=foo" },
		"W-152 field":                  func(r *Request) { r.RawQuery += "&fieldSelector=spec.foo%3D1" },
		"W-31 sendInitialEvents":       func(r *Request) { r.RawQuery += "&sendInitialEvents=false" },
		"W-31 match":                   func(r *Request) { r.RawQuery += "&resourceVersionMatch=Exact" },
		"W-31 match, a name with case": func(r *Request) { r.RawQuery += "&resourceVersionMatch=notolderthan" },
	} {
		r := good
		change(&r)
		if got := p.Plan(r).text(); got != "upstream" {
			t.Errorf("%s: got %q, want upstream", rule, got)
		}
	}
	for rule, change := range map[string]func(*Request){
		"W-9 pretty=false wins over the agent": func(r *Request) { r.RawQuery += "&pretty=0"; r.UserAgent = "curl/8.5.0" },
		"W-9 empty is absent":                  func(r *Request) { r.RawQuery += "&pretty=" },
		"W-28 client-go sends it":              func(r *Request) { r.RawQuery += "&timeout=32s" },
		"W-24 unknown":                         func(r *Request) { r.RawQuery += "&foo=1&dryRun=All" },
		"W-24 first wins":                      func(r *Request) { r.RawQuery += "&resourceVersion=7" },
		"W-24 case":                            func(r *Request) { r.RawQuery += "&Watch=1" },
		"W-24 bad escapes are dropped":         func(r *Request) { r.RawQuery += "&labelSelector=%zz&watch=%zz&a;limit=abc" },
		"W-25":                                 func(r *Request) { r.RawQuery += "&watch=FALSE" },
		"W-26 negative is none":                func(r *Request) { r.RawQuery += "&limit=-7" },
		"D9 protobuf or JSON":                  func(r *Request) { r.Accept = "application/vnd.kubernetes.protobuf,application/json" },
	} {
		r := good
		change(&r)
		if got := p.Plan(r).text(); got != "pods list >=0" {
			t.Errorf("%s: got %q", rule, got)
		}
	}
}

func TestPlanGet(t *testing.T) {
	p := testPlanner(t)
	for _, c := range []struct{ rule, query, want string }{
		{"D7 most recent", "", "upstream"},
		{"W-24 empty is absent", "resourceVersion=", "upstream"},
		{"W-95 any", "resourceVersion=0", "pods get c1/a"},
		{"W-95 not older", "resourceVersion=100", "pods get c1/a"},
		{"W-95 newer than the cache", "resourceVersion=101", "upstream"},
		{"W-27 malformed", "resourceVersion=abc", "upstream"},
		{"W-27 leading zeros", "resourceVersion=07", "upstream"},
		{"W-34 export", "resourceVersion=0&export=true", "upstream"},
		{"W-34 ignored", "resourceVersion=0&watch=true&limit=abc&labelSelector=((&resourceVersionMatch=Exact", "pods get c1/a"},
	} {
		r := Request{Method: "GET", Path: "/api/v1/namespaces/c1/pods/a", RawQuery: c.query, Trusted: true}
		if got := p.Plan(r).text(); got != c.want {
			t.Errorf("%s: %s: got %q, want %q", c.rule, c.query, got, c.want)
		}
	}
}

// token is a continue token as upstream makes them (W-80).
func token(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func TestPlanList(t *testing.T) {
	p := testPlanner(t)
	good := token(`{"v":"meta.k8s.io/v1","rv":90,"start":"/c1/b\u0000"}`)
	for _, c := range []struct{ rule, query, want string }{
		{"W-63 most recent", "", "upstream"},
		{"W-63 most recent", "limit=500", "upstream"},
		{"W-63 any", "resourceVersion=0", "pods list >=0"},
		{"W-63 any has no limit", "resourceVersion=0&limit=5", "pods list >=0"},
		{"W-63 any", "resourceVersion=0&resourceVersionMatch=NotOlderThan", "pods list >=0"},
		{"W-63 not older", "resourceVersion=90", "pods list >=90"},
		{"W-63 legacy exact", "resourceVersion=90&limit=5", "pods list =90 limit 5"},
		{"W-63 not older, limit", "resourceVersion=90&limit=5&resourceVersionMatch=NotOlderThan", "pods list >=90 limit 5"},
		{"W-63 exact", "resourceVersion=90&resourceVersionMatch=Exact", "pods list =90"},
		{"W-63 exact, limit", "resourceVersion=90&resourceVersionMatch=Exact&limit=3", "pods list =90 limit 3"},
		{"W-27", "resourceVersion=-1", "upstream"},
		{"W-27", "resourceVersion=%2B5", "upstream"},
		{"W-27", "resourceVersion=99999999999999999999", "upstream"},
		{"W-31", "resourceVersion=90&resourceVersionMatch=Foo", "upstream"},
		{"W-31", "resourceVersionMatch=NotOlderThan", "upstream"},
		{"W-63 continue", "continue=" + good, `pods list =90 from "c1/b\x00"`},
		{"W-81 another limit", "limit=2&continue=" + good, `pods list =90 limit 2 from "c1/b\x00"`},
		{"W-63 continue with 0", "resourceVersion=0&continue=" + good, "upstream"},
		{"W-63 continue with a version", "resourceVersion=90&continue=" + good, "upstream"},
		{"W-31 continue with a match", "resourceVersionMatch=Exact&continue=" + good, "upstream"},
		{"W-80 without the slash", "continue=" + token(`{"v":"meta.k8s.io/v1","rv":90,"start":"c1/b\u0000"}`), `pods list =90 from "c1/b\x00"`},
		{"W-81 inclusive", "continue=" + token(`{"v":"meta.k8s.io/v1","rv":90,"start":"/c1/b"}`), `pods list =90 from "c1/b"`},
		{"W-81 from the beginning", "continue=" + token(`{"v":"meta.k8s.io/v1","rv":90,"start":"/"}`), "pods list =90"},
		{"W-83 inconsistent", "continue=" + token(`{"v":"meta.k8s.io/v1","rv":-1,"start":"/c1/b\u0000"}`), "upstream"},
		{"W-82 version 0", "continue=" + token(`{"v":"meta.k8s.io/v1","rv":0,"start":"/c1/b\u0000"}`), "upstream"},
		{"W-82 another encoding", "continue=" + token(`{"v":"v1","rv":90,"start":"/c1/b\u0000"}`), "upstream"},
		{"W-82 empty start", "continue=" + token(`{"v":"meta.k8s.io/v1","rv":90,"start":""}`), "upstream"},
		{"W-82 relative", "continue=" + token(`{"v":"meta.k8s.io/v1","rv":90,"start":"../c2/a\u0000"}`), "upstream"},
		{"W-82 not clean", "continue=" + token(`{"v":"meta.k8s.io/v1","rv":90,"start":"//c2/a\u0000"}`), "upstream"},
		{"W-82 padded", "continue=" + good + "==", "upstream"},
		{"W-82 not JSON", "continue=" + token("hello"), "upstream"},
		{"W-35 a name", "resourceVersion=0&fieldSelector=metadata.name%3Da", "pods in /a list >=0"},
		{"W-35 two names", "resourceVersion=0&fieldSelector=metadata.name%3Da,metadata.name%3Db", "pods in /a list >=0"},
		{"W-152", "resourceVersion=0&fieldSelector=spec.nodeName%3Da", "pods list >=0"},
	} {
		if got := p.Plan(Request{Method: "GET", Path: podsPath, RawQuery: c.query, Trusted: true}).text(); got != c.want {
			t.Errorf("%s: %s: got %q, want %q", c.rule, c.query, got, c.want)
		}
	}
}

func TestPlanWatch(t *testing.T) {
	p := testPlanner(t)
	const notOlder = "&resourceVersionMatch=NotOlderThan"
	for _, c := range []struct{ rule, query, want string }{
		{"W-101 consistent", "watch=1", "pods watch state now 42m0s proven"},
		{"W-101 any", "watch=1&resourceVersion=0", "pods watch state 42m0s"},
		{"W-100 events", "watch=1&resourceVersion=90", "pods watch events >90 42m0s"},
		{"W-101 too short for a proof", "watch=1&timeoutSeconds=6", "upstream"},
		{"W-106 future", "watch=1&resourceVersion=900", "pods watch events >900 42m0s"},
		{"W-100 consistent", "watch=1&sendInitialEvents=true" + notOlder, "pods watch state now 42m0s proven"},
		{"W-100 any", "watch=1&resourceVersion=0&sendInitialEvents=true" + notOlder, "pods watch state 42m0s"},
		{"W-100 at least", "watch=1&resourceVersion=90&sendInitialEvents=true" + notOlder, "pods watch state >=90 42m0s"},
		{"W-100 cache's present", "watch=1&resourceVersion=0&sendInitialEvents=false" + notOlder, "pods watch events now 42m0s"},
		{"W-100 store's present", "watch=1&sendInitialEvents=false" + notOlder, "upstream"},
		{"W-100 as absent", "watch=1&resourceVersion=90&sendInitialEvents=false" + notOlder, "pods watch events >90 42m0s"},
		{"W-32", "watch=1&sendInitialEvents=true", "upstream"},
		{"W-32", "watch=1&resourceVersion=0" + notOlder, "upstream"},
		{"W-32", "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact", "upstream"},
		{"W-32", "watch=1&sendInitialEvents=true&continue=x" + notOlder, "upstream"},
		{"W-32 ignored", "watch=1&resourceVersion=9&limit=1&continue=abc", "pods watch events >9 42m0s"},
		{"W-32 defaulted, then forbidden", "watch=1&resourceVersion=0&continue=abc", "upstream"},
		{"W-26", "watch=1&resourceVersion=0&limit=abc", "upstream"},
		{"W-27", "watch=1&resourceVersion=abc", "upstream"},
		{"W-25 empty is true", "watch=&resourceVersion=0", "pods watch state 42m0s"},
		{"W-25 no is true", "watch=no&resourceVersion=0&allowWatchBookmarks=yes", "pods watch state bookmarks 42m0s"},
		{"W-25 false", "watch=1&resourceVersion=0&allowWatchBookmarks=False", "pods watch state 42m0s"},
		{"W-29 seconds", "watch=1&resourceVersion=0&timeoutSeconds=7", "pods watch state 7s"},
		{"W-29 uncapped", "watch=1&resourceVersion=0&timeoutSeconds=86400", "pods watch state 24h0m0s"},
		{"W-29 zero is unset", "watch=1&resourceVersion=0&timeoutSeconds=0", "pods watch state 42m0s"},
		{"W-29 negative", "watch=1&resourceVersion=0&timeoutSeconds=-1", "upstream"},
		{"W-29 overflow", "watch=1&resourceVersion=0&timeoutSeconds=9223372036854775807", "upstream"},
		{"W-28 ignored", "watch=1&resourceVersion=0&timeout=abc", "pods watch state 42m0s"},
		{"W-9 ignored", "watch=1&resourceVersion=0&pretty=true", "pods watch state 42m0s"},
		{"W-117", "watch=1&resourceVersion=0&fieldSelector=metadata.name%3Da", "pods in /a watch state 42m0s"},
	} {
		if got := p.Plan(Request{Method: "GET", Path: podsPath, RawQuery: c.query, Trusted: true}).text(); got != c.want {
			t.Errorf("%s: %s: got %q, want %q", c.rule, c.query, got, c.want)
		}
	}
}

// A consistent watch is not taken on while proofs fail, and is again once one has succeeded (D7).
func TestPlanDoubtful(t *testing.T) {
	p := testPlanner(t)
	source := p.Catalog.Find(podResource.GVR)
	r := Request{Method: "GET", Path: podsPath, RawQuery: "watch=1", Trusted: true}
	for range 2 {
		if got := p.Plan(r).Action; got != FromCacheProven {
			t.Fatalf("before the second failure: %v", got)
		}
		if _, err := source.Fresh.Prove(t.Context()); err == nil {
			t.Fatal("proven by nobody")
		}
	}
	if got := p.Plan(r).text(); got != "upstream" {
		t.Errorf("after two failures: %q", got)
	}
	r.RawQuery += "&resourceVersion=0"
	if got := p.Plan(r).text(); got != "pods watch state 42m0s" {
		t.Errorf("any state, after two failures: %q", got)
	}
}

// FuzzPlan: a plan never panics, and what is answered from the cache was well-formed, in every word that upstream would look at.
func FuzzPlan(f *testing.F) {
	for _, seed := range []struct{ path, query, accept string }{
		{podsPath, "resourceVersion=0", ""},
		{podsPath, "watch=1&allowWatchBookmarks=true&timeoutSeconds=300", "application/json, */*"},
		{"/api/v1/namespaces/c1/pods", "resourceVersion=9&resourceVersionMatch=Exact&limit=2&labelSelector=a%3Db", "*/*;q=0.1"},
		{"/api/v1/namespaces/c1/pods/a", "resourceVersion=0", "application/vnd.kubernetes.protobuf,application/json"},
		{"/api/v1/nodes/n", "resourceVersion=1", ""},
		{"/apis/example.com/v1/widgets", "fieldSelector=spec.color%3Dred&resourceVersion=0", "application/json;q=NaN"},
		{"/api/v1/namespaces/c1/pods", "limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":9,"start":"../c2\u0000"}`), ""},
	} {
		f.Add("GET", seed.path, seed.query, seed.accept, "agent", true)
	}
	p := testPlanner(f)
	f.Fuzz(func(t *testing.T, method, path, rawQuery, accept, agent string, trusted bool) {
		plan := p.Plan(Request{Method: method, Path: path, RawQuery: rawQuery, Accept: accept, UserAgent: agent, Trusted: trusted})
		if plan.Action == Upstream {
			return
		}
		if method != http.MethodGet || !trusted || plan.Source == nil {
			t.Fatalf("%s, trusted %v: %s", method, trusted, plan.text())
		}
		query, _ := url.ParseQuery(rawQuery)
		if rv := query.Get("resourceVersion"); rv != "" {
			if _, err := strconv.ParseUint(rv, 10, 63); err != nil {
				t.Errorf("resourceVersion %q: %s", rv, plan.text())
			}
		}
		if plan.Get != nil {
			return
		}
		wellFormedCollection(t, plan, path, query)
	})
}

func wellFormedCollection(t *testing.T, plan Plan, path string, query url.Values) {
	t.Helper()
	for _, name := range []string{"limit", "timeoutSeconds"} {
		if _, err := strconv.ParseInt(query.Get(name), 10, 64); query.Has(name) && err != nil {
			t.Errorf("%s=%s: %s", name, query.Get(name), plan.text())
		}
	}
	if _, err := labels.Parse(query.Get("labelSelector")); err != nil {
		t.Errorf("%v: %s", err, plan.text())
	}
	if _, err := fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		t.Errorf("%v: %s", err, plan.text())
	}
	namespace := plan.Selector.Namespace
	if strings.Contains(path, "/namespaces/") && namespace == "" {
		t.Errorf("the namespace of %s is not selected: %s", path, plan.text())
	}
	if l := plan.List; l != nil {
		if l.Start != "" && namespace != "" && !strings.HasPrefix(l.Start, namespace+"/") {
			t.Errorf("a token leads out of namespace %q: %s", namespace, plan.text())
		}
		if l.RV == 0 && query.Get("resourceVersion") != "0" {
			t.Errorf("the most recent state, from the cache: %s", plan.text())
		}
	}
	if w := plan.Watch; w != nil {
		if w.Timeout <= 0 {
			t.Errorf("a watch without an end: %s", plan.text())
		}
		if (w.Start == StateConsistent) != (plan.Action == FromCacheProven) {
			t.Errorf("what must be proven is not what is: %s", plan.text())
		}
	}
}
