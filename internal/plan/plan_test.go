package plan

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/internal/object"
	"spillway/internal/source/sourcetest"
)

// testPlanner plans for a catalog that is complete through 100.
func testPlanner(t testing.TB) *Planner {
	catalog := sourcetest.Resources{}
	for _, info := range []*object.Resource{sourcetest.Pods, sourcetest.Nodes, sourcetest.Namespaces,
		sourcetest.Deployments, sourcetest.Widgets} {
		catalog[info.GVR] = sourcetest.New(t, info, sourcetest.Unreachable{}, 100)
	}
	return &Planner{Catalog: catalog, WatchTimeout: func() time.Duration { return 42 * time.Minute }}
}

// Plan decides how a request is answered whose sender may read what it requests.
func (p *Planner) Plan(r Request) Plan {
	candidate, _ := p.Consider(r) // the zero Candidate goes upstream
	return p.Decide(candidate)
}

// text is a plan in a few words.
func (p Plan) text() string {
	switch p.Action {
	case Upstream:
		return "upstream"
	case Refuse:
		return strconv.Itoa(int(p.Status.Code)) + " " + p.Status.Message
	}
	var b strings.Builder
	b.WriteString(p.Source.Resource().Info.String())
	if s := p.Selector; p.Get == nil && (s.Namespace != "" || s.Name != "") {
		b.WriteString(" in " + s.Namespace + "/" + s.Name)
	}
	switch {
	case p.Get != nil:
		b.WriteString(" get " + p.Get.Key + " >=" + strconv.FormatUint(p.Get.RV, 10))
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
	if l.Scanned.Name != "" {
		text += " alone"
	}
	if l.Hurried {
		text += " hurried"
	}
	return text
}

func (w *WatchPlan) text() string {
	text := map[WatchStart]string{
		StateAny: "state", StateAtLeast: "state >=", StateConsistent: "state now", EventsFrom: "events >",
		EventsFromNow:    "events now",
		EventsFromNewest: "events newest",
	}[w.Start]
	if w.RV > 0 {
		text += strconv.FormatUint(w.RV, 10)
	}
	if w.Bookmarks {
		text += " bookmarks"
	}
	if w.EndMark {
		text += " mark"
	}
	return text + " " + w.Timeout.String()
}

const podsPath = "/api/v1/pods"

func TestPlanPaths(t *testing.T) {
	p := testPlanner(t)
	for _, c := range []struct{ rule, Target, want string }{
		{"W-20", "/api/v1/pods?resourceVersion=0", "pods list >=0"},
		{"W-20", "/api/v1/namespaces/c1/pods?resourceVersion=0", "pods in c1/ list >=0"},
		{"W-20", "/apis/apps/v1/namespaces/c1/deployments?resourceVersion=0", "deployments.apps in c1/ list >=0"},
		{"W-20", "/apis/example.com/v1/widgets?resourceVersion=0", "widgets.example.com list >=0"},
		{"W-20", "/api/v1/namespaces/c1/pods/a?resourceVersion=0", "pods get c1/a >=0"},
		{"W-20", "/api/v1/nodes/n1?resourceVersion=0", "nodes get n1 >=0"},
		{"W-20", "/api/v1/namespaces/c1?resourceVersion=0", "namespaces get c1 >=0"},
		{"W-20", "/api/v1/namespaces?resourceVersion=0", "namespaces list >=0"},
		{"W-20 status of a namespace", "/api/v1/namespaces/c1/status?resourceVersion=0", "upstream"},
		{"W-20 finalize of a namespace", "/api/v1/namespaces/c1/finalize?resourceVersion=0", "upstream"},
		{"W-20 subresource", "/api/v1/namespaces/c1/pods/a/log?resourceVersion=0", "upstream"},
		{"W-20 empty namespace", "/api/v1/namespaces//pods?resourceVersion=0", "pods list >=0"},
		{"W-20 empty namespace, custom", "/apis/example.com/v1/namespaces//widgets?resourceVersion=0",
			"widgets.example.com list >=0"},
		{"W-20 empty namespace of an object", "/api/v1/namespaces//pods/a?resourceVersion=0", "upstream"},
		{"W-20 empty namespace, cluster-scoped", "/api/v1/namespaces//nodes?resourceVersion=0", "upstream"},
		{"W-20 no namespace in the path of an object", "/api/v1/pods/a?resourceVersion=0", "upstream"},
		{"W-20 namespace of a cluster-scoped resource", "/api/v1/namespaces/c1/nodes?resourceVersion=0", "upstream"},
		{"W-20 not mirrored", "/api/v1/services?resourceVersion=0", "upstream"},
		{"W-234 per version", "/apis/apps/v1beta1/deployments?resourceVersion=0", "upstream"},
		{"W-21 trailing slash", "/api/v1/pods/?resourceVersion=0", "pods list >=0"},
		{"W-21 trailing slash of an object", "/api/v1/nodes/n1/?resourceVersion=0", "nodes get n1 >=0"},
		{"W-21 two trailing slashes", "/api/v1/pods//?resourceVersion=0", "upstream"},
		{"W-21 double slash", "//api/v1/pods?resourceVersion=0", "upstream"},
		{"W-21 case", "/api/v1/Pods?resourceVersion=0", "upstream"},
		{"W-21 decoded before matching", "/api/v1/namespaces/c1/pods/%61?resourceVersion=0", "pods get c1/a >=0"},
		{"W-21 slash in a segment", "/api/v1/namespaces/c1/pods/a%2Fb?resourceVersion=0", "upstream"},
		{"W-21 slash in a segment", "/api/v1/namespaces%2Fc1/pods?resourceVersion=0", "pods in c1/ list >=0"},
		{"W-21 an escape in a name", "/api/v1/namespaces/c1/pods/a%2561?resourceVersion=0", "upstream"},
		{"W-21 names are not validated", "/api/v1/namespaces/c1/pods/UPPER?resourceVersion=0", "pods get c1/UPPER >=0"},
		{"W-21 no resolution", "/api/v1/namespaces/c1/../c2/pods?resourceVersion=0", "upstream"},
		{"W-21 no resolution", "/api/v1/namespaces/%2e%2e/pods?resourceVersion=0", "upstream"},
		{"D12 no namespace", "/api/v1/namespaces/..;/pods?resourceVersion=0", "upstream"},
		{"D12 no namespace", `/api/v1/namespaces/..\x/pods?resourceVersion=0`, "upstream"},
		{"D12 no namespace", "/api/v1/namespaces/UPPER/pods?resourceVersion=0", "upstream"},
		{"D12 no namespace", "/api/v1/namespaces/a.b/pods/x?resourceVersion=0", "upstream"},
		{"W-21 bad escape", "/api/v1/namespaces/c1/pods/%zz?resourceVersion=0", "upstream"},
		{"W-33 deprecated watches", "/api/v1/watch/pods?resourceVersion=0", "pods watch state 42m0s"},
		{"W-33 deprecated watches", "/api/v1/watch/namespaces/c1/pods", "pods in c1/ watch state 42m0s"},
		{"W-33 deprecated watches", "/apis/example.com/v1/watch/widgets", "widgets.example.com watch state 42m0s"},
		{"W-33 of a name", "/api/v1/watch/namespaces/c1/pods/a", "pods in c1/a watch state 42m0s"},
		{"W-33 of a name", "/api/v1/watch/nodes/n1", "nodes in /n1 watch state 42m0s"},
		{"W-33 of namespaces", "/api/v1/watch/namespaces", "namespaces watch state 42m0s"},
		{"W-33 of a namespace", "/api/v1/watch/namespaces/c1", "namespaces in /c1 watch state 42m0s"},
		{"W-33 of a name without its namespace", "/api/v1/watch/pods/a", "upstream"},
		{"W-33 of a subresource", "/api/v1/watch/namespaces/c1/status", "upstream"},
		{"W-33", "/api/v1/watch?resourceVersion=0", "upstream"},
		{"W-33", "/api/v1/watch/?resourceVersion=0", "upstream"},
		{"D1 other paths", "/version?resourceVersion=0", "upstream"},
		{"D1 other paths", "/?resourceVersion=0", "upstream"},
		{"D1 other paths", "?resourceVersion=0", "upstream"},
		{"D1 other paths", "*", "upstream"},
		{"D1 discovery", "/api/v1?resourceVersion=0", "upstream"},
		{"D1 discovery", "/apis/apps/v1?resourceVersion=0", "upstream"},
		{"D1 absolute form", "http://x/api/v1/pods?resourceVersion=0", "upstream"},
	} {
		path, query, _ := strings.Cut(c.Target, "?")
		if got := p.Plan(Request{Method: "GET", Path: path, RawQuery: query, Plain: true}).text(); got != c.want {
			t.Errorf("%s: %s: got %q, want %q", c.rule, c.Target, got, c.want)
		}
	}
}

func TestPlanRequests(t *testing.T) {
	p := testPlanner(t)
	good := Request{Method: "GET", Path: podsPath, RawQuery: "resourceVersion=0", Plain: true}
	if got := p.Plan(good).text(); got != "pods list >=0" {
		t.Fatalf("got %q", got)
	}
	for rule, change := range map[string]func(*Request){
		"W-23 HEAD of a custom resource": func(r *Request) {
			r.Method, r.Path = http.MethodHead, "/apis/example.com/v1/widgets"
		},
		"W-23 HEAD, and a malformed timeout":   func(r *Request) { r.Method = http.MethodHead; r.RawQuery += "&timeout=x" },
		"W-23 POST":                            func(r *Request) { r.Method = http.MethodPost },
		"W-23 methods have a case":             func(r *Request) { r.Method = "get" },
		"W-30 a malformed timeout comes first": func(r *Request) { r.RawQuery += "&timeout=x" },
		"D12 it is not served":                 func(r *Request) { r.Path = "/api/v1/namespaces/a/strangers" },
		"W-119 another protocol":               func(r *Request) { r.Plain = false },
		"W-119 a list over a WebSocket":        func(r *Request) { r.WebSocket = true },
		"W-119 a HEAD over a WebSocket": func(r *Request) {
			r.Method, r.RawQuery, r.WebSocket = "HEAD", "watch=1", true
		},
		"W-40 a watch in YAML": func(r *Request) { r.RawQuery += "&watch=1"; r.Accept = "application/yaml" },
		"W-47 YAML":            func(r *Request) { r.Accept = "application/yaml" },
		"W-9 pretty":           func(r *Request) { r.RawQuery += "&pretty=true" },
		"W-9 curl":             func(r *Request) { r.UserAgent = "curl/8.5.0" },
		"W-46 tables": func(r *Request) {
			r.Accept = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"
		},
		"W-240 sharded":                        func(r *Request) { r.RawQuery += "&shardSelector=x" },
		"W-24 read otherwise by other parties": func(r *Request) { r.RawQuery += strings.Repeat("&a", QueryParametersLimit) },
		"W-24 too many to be read": func(r *Request) {
			r.RawQuery += strings.Repeat("&a", 10_001) + "&labelSelector=a"
		},
		"W-24 too many, with separators alone": func(r *Request) { r.RawQuery += strings.Repeat("&", QueryParametersLimit) },
		"W-152 field":                          func(r *Request) { r.RawQuery += "&fieldSelector=spec.foo%3D1" },
		"W-152 field of a watch":               func(r *Request) { r.RawQuery += "&watch=1&fieldSelector=spec.foo%3D1" },
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
		"W-28 as long as upstream likes":       func(r *Request) { r.RawQuery += "&timeout=0s" },
		"W-24 unknown":                         func(r *Request) { r.RawQuery += "&foo=1&dryRun=All" },
		"W-24 first wins":                      func(r *Request) { r.RawQuery += "&resourceVersion=7" },
		"W-24 case":                            func(r *Request) { r.RawQuery += "&Watch=1" },
		"W-24 as many as are read": func(r *Request) {
			r.RawQuery += strings.Repeat("&a", QueryParametersLimit-1)
		},
		"W-24 bad escapes are dropped": func(r *Request) { r.RawQuery += "&labelSelector=%zz&watch=%zz&a;limit=abc" },
		"W-25":                         func(r *Request) { r.RawQuery += "&watch=FALSE" },
		"W-26 negative is none":        func(r *Request) { r.RawQuery += "&limit=-7" },
		"D9 protobuf or JSON": func(r *Request) {
			r.Accept = "application/vnd.kubernetes.protobuf,application/json"
		},
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
		{"W-95 any", "resourceVersion=0", "pods get c1/a >=0"},
		{"W-95 not older", "resourceVersion=100", "pods get c1/a >=100"},
		{"W-95 newer than the cache", "resourceVersion=101", "pods get c1/a >=101"},
		{"W-27 malformed", "resourceVersion=abc",
			`500 resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax`},
		{"W-27 leading zeros", "resourceVersion=07", "pods get c1/a >=7"},
		{"W-27 zeros", "resourceVersion=00", "pods get c1/a >=0"},
		{"W-27 the largest", "resourceVersion=18446744073709551615", "pods get c1/a >=18446744073709551615"},
		{"W-34 export", "resourceVersion=abc&export=true",
			"400 the export parameter, deprecated since v1.14, is no longer supported"},
		{"W-34 export=false", "resourceVersion=0&export=0", "pods get c1/a >=0"},
		{"W-28 malformed", "resourceVersion=abc&timeout=5", "upstream"},
		{"W-34 ignored", "resourceVersion=0&watch=true&limit=abc&labelSelector=((&resourceVersionMatch=Exact&continue=x",
			"pods get c1/a >=0"},
	} {
		r := Request{Method: "GET", Path: "/api/v1/namespaces/c1/pods/a", RawQuery: c.query, Plain: true}
		if got := p.Plan(r).text(); got != c.want {
			t.Errorf("%s: %s: got %q, want %q", c.rule, c.query, got, c.want)
		}
	}
}
