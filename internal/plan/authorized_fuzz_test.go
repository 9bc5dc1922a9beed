package plan

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/internal/auth"
	"spillway/internal/object"
	"spillway/internal/source/sourcetest"
)

// readable are objects of which a plan shows some: in two namespaces, one of which is the beginning
// of the other's name, and in none.
var readable = []string{"a/x 1", "a/y 2", "ab/x 3", "ab/y 4", "x 5", "y 6", "a 7", "ab 8"}

// FuzzTargetIsWhatIsAuthorized: what the planner would answer from memory is within the attributes
// that the authorizer decides on. Both have one reading of the path, and each its own of the query.
func FuzzTargetIsWhatIsAuthorized(f *testing.F) {
	for _, path := range []string{
		podsPath, podsPath + "/", podsPath + "//", "//api/v1/pods", "/api//v1/pods", "/api/v1//pods",
		"/api/v1/namespaces//pods", "/api/v1/namespaces//pods/x",
		"/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/x", "/api/v1/namespaces/a/pods/x/",
		"/api/v1/namespaces/a%2Fpods", "/api/v1/namespaces/a/pods%2Fx",
		"/api/v1/namespaces/a/../ab/pods/x", "/api/v1/namespaces/a/./pods", "/api/v1/namespaces/a/pods/..",
		"/api/v1/namespaces/a%2F..%2Fab/pods",
		"/api/v1/namespaces/a", "/api/v1/namespaces/a/status", "/api/v1/namespaces/a/finalize",
		"/api/v1/namespaces/status/pods", "/api/v1/namespaces/a/status/x",
		"/api/v1/namespaces/namespaces/namespaces", "/api/v1/namespaces/namespaces", "/api/v1/namespaces/a/namespaces",
		"/api/v1/namespaces/a/namespaces/ab",
		"/api/v1/watch/pods", "/api/v1/watch/namespaces/a/pods/x", "/api/v1/watch/namespaces/a", "/api/v1/watch/watch/pods",
		"/api/v1/proxy/pods", "/api/v1/watch",
		"/api/v1/namespaces/watch/pods", "/apis/apps/v1/deployments", "/apis//v1/pods",
		"/apis/apps/v1/namespaces/a/deployments/x.y", "/api/v1/nodes/x", "/api/v1/nodes",
		"/api/v1/pods/x", "/api/v1/namespaces/a/nodes/x", "/api/v1/namespaces/a/pods/x%00", "/api/v1/namespaces/a/pods/x?",
		"/api/v1/namespaces/a/pods/%2e%2e", "/api/v1/%70ods",
		"/api/v1/namespaces/a/pods/x#y", "/api/v1/namespaces/a;b/pods", `/api/v1/namespaces/a\..\ab/pods`,
		"/apis/example.com/v1/widgets", "/API/v1/pods",
	} {
		for _, query := range []string{"resourceVersion=0", "watch=1&resourceVersion=0"} {
			f.Add("GET", path, query)
		}
	}
	for _, query := range []string{
		"resourceVersion=0&watch=", "resourceVersion=0&watch=0", "resourceVersion=0&watch=FALSE",
		"resourceVersion=0&watch=0&watch=1", "resourceVersion=0&watch=1&watch=0",
		"resourceVersion=0&watch=x&limit=x", "resourceVersion=0&fieldSelector=metadata.name%3Dx",
		"resourceVersion=0&fieldSelector=metadata.name%3Dx,metadata.name%3Dy",
		"resourceVersion=0&fieldSelector=metadata.name%3Dx&fieldSelector=metadata.name%3Dy",
		"resourceVersion=0&fieldSelector=metadata.name%3D..",
		"resourceVersion=0&fieldSelector=metadata.name!%3Dx",
		"resourceVersion=0&fieldSelector=metadata.name%3D%3Dx;fieldSelector=", "resourceVersion=0;watch=1",
		"resourceVersion=0&fieldSelector=metadata.namespace%3Dab",
		"resourceVersion=0&fieldSelector=metadata.namespace%3Dab,metadata.name%3Dx", "%zz&resourceVersion=0&watch=1",
		"resourceVersion=0&labelSelector=a&fieldSelector=metadata.name%3D", "resourceVersion=0&Watch=1",
		"resourceVersion=0&timeout=x&watch=1", "resourceVersion=0&pretty=1",
		"continue=" + token(`{"v":"meta.k8s.io/v1","rv":100,"start":"../ab/x"}`), "continue=" +
			token(`{"v":"meta.k8s.io/v1","rv":-1,"start":"ab/x\u0000"}`),
		"fieldSelector=metadata.name%3Dx&continue=" + token(`{"v":"meta.k8s.io/v1","rv":100,"start":"y\u0000"}`),
	} {
		for _, path := range []string{"/api/v1/namespaces/a/pods", podsPath, "/api/v1/watch/namespaces/a/pods/x",
			"/api/v1/nodes", "/api/v1/namespaces/a/pods/x"} {
			f.Add("GET", path, query)
		}
	}
	f.Add("HEAD", podsPath, "resourceVersion=0")
	f.Add("get", podsPath, "resourceVersion=0")
	catalog := sourcetest.Resources{}
	for _, info := range []*object.Resource{sourcetest.Pods, sourcetest.Nodes, sourcetest.Namespaces,
		sourcetest.Deployments, sourcetest.Widgets} {
		var some []string
		for _, o := range readable {
			if strings.Contains(o, "/") == info.Namespaced {
				some = append(some, o)
			}
		}
		catalog[info.GVR] = sourcetest.New(f, info, sourcetest.Unreachable{}, 100, some...)
	}
	p := &Planner{Catalog: catalog, WatchTimeout: func() time.Duration { return time.Hour }}
	f.Fuzz(func(t *testing.T, method, path, query string) {
		r := Request{Method: method, Path: path, RawQuery: query, Plain: true}
		c, ok := p.Consider(r)
		if !ok {
			return
		}
		what, ok := auth.AttributesOf(method, path, query)
		if !ok {
			return // such a request is not authorized
		}
		plan := p.Decide(c)
		if what.Path != "" || what.Subresource != "" || what.Group != c.target.gvr.Group ||
			what.Version != c.target.gvr.Version || what.Resource != c.target.gvr.Resource {
			t.Fatalf("asked about %+v: %s", what, plan.text())
		}
		if plan.Action == Upstream || plan.Action == Refuse {
			return
		}
		if info := plan.Source.Resource().Info; info.GVR != c.target.gvr || method != http.MethodGet {
			t.Fatalf("%s of %v is answered by %s", method, c.target.gvr, info)
		}
		if verb := verbOf(plan); what.Verb != verb {
			t.Fatalf("authorized to %s, and answered as a %s", what.Verb, verb)
		}
		checkShown(t, plan, what)
	})
}

// verbOf is the right that an answer takes.
func verbOf(p Plan) string {
	switch {
	case p.Get != nil:
		return "get"
	case p.List != nil:
		return "list"
	}
	return "watch"
}

// checkShown: each object in the answer is within the authorized attributes.
func checkShown(t *testing.T, plan Plan, what auth.Attributes) {
	t.Helper()
	resource := plan.Source.Resource()
	show := func(o *object.Object) bool {
		namespace := o.Namespace()
		if resource.Info.GVR.Resource == "namespaces" { // which upstream takes to be in themselves
			namespace = o.Name()
		}
		switch {
		case what.Namespace != "" && namespace != what.Namespace, what.Name != "" && o.Name() != what.Name:
			t.Errorf("%s is shown where %+v is allowed: %s", o.Key, what, plan.text())
		}
		return true
	}
	if plan.Get != nil {
		if o, ok := resource.Snapshot().Get(plan.Get.Key); ok {
			show(o)
		}
		want := what.Name
		if resource.Info.Namespaced {
			want = what.Namespace + "/" + what.Name
		}
		if plan.Get.Key != want || plan.Get.Name != what.Name || what.Name == "" {
			t.Errorf("%+v is allowed: %s", what, plan.text())
		}
		return
	}
	start := ""
	if plan.List != nil {
		start = plan.List.Start
	}
	resource.Snapshot().Scan(plan.Selector, start, show)
}
