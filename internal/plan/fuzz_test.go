package plan

import (
	"math"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
	"spillway/internal/source/sourcetest"
)

// FuzzPlan: a plan never panics; what is answered from the cache is what apimachinery takes, and
// what is refused is what it, or the rules around it, refuse.
func FuzzPlan(f *testing.F) {
	for _, seed := range []struct{ path, query, accept string }{
		{podsPath, "resourceVersion=0", ""},
		{podsPath, "watch=1&allowWatchBookmarks=true&timeoutSeconds=300", "application/json, */*"},
		{"/api/v1/namespaces/c1/pods", "resourceVersion=9&resourceVersionMatch=Exact&limit=2&labelSelector=a%3Db",
			"*/*;q=0.1"},
		{"/api/v1/namespaces/c1/pods/a", "resourceVersion=0", "application/vnd.kubernetes.protobuf,application/json"},
		{"/api/v1/namespaces/c1/pods/a/", "resourceVersion=abc&export=1&timeout=1", ""},
		{"/api/v1/nodes/n", "resourceVersion=1", ""},
		{"/api/v1/watch/namespaces/c1/pods/a", "fieldSelector=metadata.name%3Db", ""},
		{"/api/v1/watch/pods", "sendInitialEvents=1", ""},
		{"/api/v1/namespaces//pods", "resourceVersion=00&limit=1", ""},
		{"/api/v1/namespaces%2Fc1/pods", "resourceVersionMatch=Foo&limit=abc", ""},
		{"/apis/example.com/v1/widgets", "fieldSelector=spec.color%3Dred&resourceVersion=0", "application/json;q=NaN"},
		{"/api/v1/namespaces/c1/pods", "limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":9,"start":"../c2\u0000"}`),
			""},
		{"/api/v1/namespaces/c1/pods", "limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":-9,"start":"/c2\u0000"}`), ""},
		{"/api/v1/namespaces/c1/pods", "resourceVersion=5&continue=" +
			token(`{"v":"meta.k8s.io/v1","rv":9,"start":"c2\u0000"}`), ""},
		{podsPath, "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=-1", ""},
		{podsPath, "labelSelector=x+in+(a&timeout=5s", ""},
		{podsPath, "fieldSelector=metadata.name%3Da,metadata.namespace%3Dc1&limit=1&resourceVersion=9", ""},
	} {
		f.Add("GET", seed.path, seed.query, seed.accept, "agent", true)
	}
	p := testPlanner(f)
	f.Fuzz(func(t *testing.T, method, path, rawQuery, accept, agent string, trusted bool) {
		plan := p.Plan(Request{Method: method, Path: path, RawQuery: rawQuery, Accept: accept, UserAgent: agent,
			Plain: trusted})
		if plan.Action == Upstream {
			return
		}
		if method == http.MethodHead && plan.Action == Refuse && plan.Status.Code == http.StatusMethodNotAllowed {
			return
		}
		if method != http.MethodGet || !trusted || plan.Source == nil {
			t.Fatalf("%s, trusted %v: %s", method, trusted, plan.text())
		}
		query, _ := url.ParseQuery(rawQuery)
		wrong := complaints(query)
		switch {
		case plan.Action == Refuse && len(wrong) == 0 &&
			!strings.Contains(plan.Status.Message, "doesn't match requested name"):
			t.Errorf("refused for nothing: %s", plan.text())
		case plan.Action == Refuse && plan.Status.Code < 400:
			t.Errorf("not a refusal: %s", plan.text())
		case plan.List != nil && slices.ContainsFunc(wrong, func(c optionError) bool { return c != aboutExport }):
			t.Errorf("%q, and yet: %s", wrong, plan.text())
		case plan.Watch != nil &&
			slices.ContainsFunc(wrong, func(c optionError) bool {
				return c != aboutTimeout && c != aboutToken && c != aboutExport
			}):
			t.Errorf("%q, and yet: %s", wrong, plan.text())
		case plan.Get != nil && (slices.Contains(wrong, aboutVersion) || slices.Contains(wrong, aboutExport) ||
			slices.Contains(wrong, aboutTimeout)):
			t.Errorf("%q, and yet: %s", wrong, plan.text())
		}
		checkScope(t, plan, path)
		checkReading(t, plan, query)
	})
}

// optionError is something that upstream may refuse a request for. Which of them counts depends on
// what the request is.
type optionError string

const (
	aboutTimeout optionError = "timeout"
	aboutExport  optionError = "export"
	aboutOptions optionError = "options"
	aboutVersion optionError = "version"
	aboutToken   optionError = "token"
)

// complaints are all that could be found fault with in a query.
func complaints(query url.Values) []optionError {
	var all []optionError
	if text := query.Get("timeout"); text != "" {
		if _, err := time.ParseDuration(text); err != nil {
			all = append(all, aboutTimeout)
		}
	}
	if values := query["export"]; len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false") {
		all = append(all, aboutExport)
	}
	var o internalversion.ListOptions
	err := scheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &o)
	internalversion.SetListOptionsDefaults(&o, true)
	if err != nil || len(validation.ValidateListOptions(&o, true)) > 0 {
		all = append(all, aboutOptions)
	}
	rv := query.Get("resourceVersion")
	if _, err := strconv.ParseUint(rv, 10, 64); err != nil && rv != "" {
		all = append(all, aboutVersion)
	}
	if text := query.Get("continue"); text != "" {
		if _, err := decodeContinue(text); err != nil || rv != "" && rv != "0" {
			all = append(all, aboutToken)
		}
	}
	return all
}

// checkScope: what a path or a token says never leads out of the namespace that the path names.
func checkScope(t *testing.T, plan Plan, path string) {
	t.Helper()
	decoded, err := url.PathUnescape(path)
	if err != nil {
		t.Fatalf("%q cannot be decoded: %s", path, plan.text())
	}
	_, after, named := strings.Cut(decoded, "/namespaces/")
	namespace, rest, deeper := strings.Cut(after, "/")
	switch {
	case !named || !deeper || rest == "" || namespace == "" || plan.Action == Refuse:
	case plan.Get != nil && !strings.HasPrefix(plan.Get.Key, namespace+"/"):
		t.Errorf("%q gets %s", path, plan.text())
	case plan.Get == nil && plan.Selector.Namespace != namespace:
		t.Errorf("the namespace of %q is not selected: %s", path, plan.text())
	case plan.List != nil && (plan.List.Scanned.Namespace != namespace || plan.List.Start != "" &&
		!strings.HasPrefix(plan.List.Start, namespace+"/")):
		t.Errorf("a list leaves namespace %q: %s", namespace, plan.text())
	}
}

// checkReading: no answer is older than the request allows, and the most recent state is proven.
func checkReading(t *testing.T, plan Plan, query url.Values) {
	t.Helper()
	asked, _ := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	switch {
	case plan.Get != nil && (plan.Get.RV != asked || query.Get("resourceVersion") == ""):
		t.Errorf("asked for %d: %s", asked, plan.text())
	case plan.List != nil && query.Get("continue") == "" && plan.List.RV != asked:
		t.Errorf("asked for %d: %s", asked, plan.text())
	case plan.List != nil && plan.List.RV == 0 && query.Get("resourceVersion") == "" && plan.Action != FromCacheProven:
		t.Errorf("the most recent state, unproven: %s", plan.text())
	case plan.List != nil && plan.List.Exact && plan.List.RV == 0:
		t.Errorf("exactly nothing: %s", plan.text())
	case plan.Watch != nil && plan.Watch.RV != asked:
		t.Errorf("asked for %d: %s", asked, plan.text())
	case plan.Watch != nil && (plan.Watch.Start == StateConsistent) != (plan.Action == FromCacheProven):
		t.Errorf("what must be proven is not what is: %s", plan.text())
	case plan.Watch != nil && plan.Watch.EndMark && !plan.Watch.Bookmarks:
		t.Errorf("a mark for a client that takes no bookmarks: %s", plan.text())
	}
}

// FuzzContinueToken: no token leads out of the scope of its request, whatever it says; and what we
// make, we read.
func FuzzContinueToken(f *testing.F) {
	for _, text := range []string{
		`{"v":"meta.k8s.io/v1","rv":90,"start":"/c1/b\u0000"}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"b"}`,
		`{"v":"meta.k8s.io/v1","rv":90,"start":"/"}`,
		`{"v":"meta.k8s.io/v1","rv":90,"start":"../c2/a\u0000"}`, `{"v":"meta.k8s.io/v1","rv":90,"start":"/c/x"}`,
		`{"rv":"1"}`, `[]`, ``, `null`,
		`{"v":"meta.k8s.io/v1","rv":90,"start":"-/x"}`, `{"v":"meta.k8s.io/v1","rv":90,"start":"\uffff"}`,
		`{"v":"v1","rv":1,"start":"a"}`,
	} {
		f.Add(text, "c1/a", uint64(90))
	}
	source := sourcetest.New(f, sourcetest.Pods, sourcetest.Unreachable{}, 100, "a/x 1", "b/w 2", "b/x 3", "b/y 4",
		"b0/x 5", "b-/x 6", "c/x 7")
	p := Planner{Catalog: sourcetest.Resources{sourcetest.Pods.GVR: source}}
	list := func(t *testing.T, path, encoded string) (*ListPlan, []string) {
		plan := p.Plan(Request{Method: "GET", Path: path, RawQuery: "continue=" + url.QueryEscape(encoded), Plain: true})
		if plan.List == nil {
			return nil, nil
		}
		var keys []string
		source.Resource().Snapshot().Scan(plan.Selector, plan.List.Start, func(o *object.Object) bool {
			keys = append(keys, o.Key)
			return true
		})
		return plan.List, keys
	}
	f.Fuzz(func(t *testing.T, text, last string, rv uint64) {
		for _, encoded := range []string{text, token(text)} {
			l, keys := list(t, "/api/v1/namespaces/b/pods", encoded)
			if l != nil && !strings.HasPrefix(l.Start, "b/") && l.Start != "" {
				t.Errorf("%q begins at %q", text, l.Start)
			}
			for _, key := range keys {
				if !strings.HasPrefix(key, "b/") {
					t.Errorf("%q shows %s", text, key)
				}
			}
		}
		// Keys are paths, and no path of an object has a NUL or what is not Unicode; resourceVersions are
		// etcd's, so int64.
		if rv == 0 || rv > math.MaxInt64 || path.Clean("/"+last) != "/"+last || last == "" || !utf8.ValidString(last) {
			return
		}
		got, err := decodeContinue(EncodeContinue(rv, last))
		if err != nil || got.Start != last+"\x00" || got.RV != int64(rv) {
			t.Errorf("of %d and %q: %+v, %v", rv, last, got, err)
		}
		if l, _ := list(t, podsPath, EncodeContinue(rv, last)); l == nil || l.Start != last+"\x00" || l.RV != rv || !l.Exact {
			t.Errorf("of %d and %q: %+v", rv, last, l)
		}
	})
}
