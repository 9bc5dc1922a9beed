package auth

import (
	"strings"
	"testing"
)

// TestAttributesOf is W-22.
func TestAttributesOf(t *testing.T) {
	const none = "not asked"
	f := func(method, target, want string) {
		t.Helper()
		path, query, _ := strings.Cut(target, "?")
		got := none
		if a, ok := AttributesOf(method, path, query); ok {
			got = strings.Join([]string{a.Verb, a.Path, a.Group, a.Version, a.Resource, a.Subresource, a.Namespace, a.Name,
				a.FieldSelector, a.LabelSelector}, "|")
		}
		if got != want {
			t.Errorf("%s %s:\ngot  %q\nwant %q", method, target, got, want)
		}
	}
	f("GET", "/api/v1/namespaces/c1/pods/a", "get|||v1|pods||c1|a||")
	f("HEAD", "/api/v1/namespaces/c1/pods/a", "get|||v1|pods||c1|a||")
	f("GET", "/api/v1/namespaces/c1/pods/%61", "get|||v1|pods||c1|a||")
	f("GET", "/api/v1/namespaces/c1/pods/a/log?follow=1", "get|||v1|pods|log|c1|a||")
	f("GET", "/apis/apps/v1/namespaces/c1/deployments/x/status", "get||apps|v1|deployments|status|c1|x||")
	f("GET", "/api/v1/namespaces/c1/pods", "list|||v1|pods||c1|||")
	f("GET", "/api/v1/pods?watch=1", "watch|||v1|pods|||||")
	f("GET", "/api/v1/pods?watch=", "watch|||v1|pods|||||")
	f("GET", "/api/v1/pods?watch=0", "list|||v1|pods|||||")
	f("GET", "/api/v1/pods?watch=1&timeoutSeconds=5&resourceVersion=7&allowWatchBookmarks=true", "watch|||v1|pods|||||")
	f("GET", "/api/v1/pods?limit=abc&watch=no&fieldSelector=metadata.name%3Da", "watch|||v1|pods||||metadata.name=a|")
	f("GET", "/api/v1/pods?limit=abc&watch=False", "list|||v1|pods|||||")
	f("GET", "/api/v1/pods?fieldSelector=metadata.name%3Da&labelSelector=b%3Dc", "list|||v1|pods|||a|metadata.name=a|b=c")
	f("GET", "/api/v1/pods?watch=1&fieldSelector=metadata.name%3Da,metadata.namespace%3Dc1",
		"watch|||v1|pods|||a|metadata.name=a,metadata.namespace=c1|")
	f("GET", "/api/v1/pods?fieldSelector=metadata.name%21%3Da", "list|||v1|pods||||metadata.name!=a|")
	f("GET", "/api/v1/pods?fieldSelector=metadata.name%3D..", "list|||v1|pods||||metadata.name=..|")
	f("GET", "/api/v1/pods?fieldSelector=nonsense", "list|||v1|pods||||nonsense|")
	f("GET", "/api/v1/pods?labelSelector=%zz", "list|||v1|pods|||||")
	f("GET", "/api/v1/pods?labelSelector=a&labelSelector=b", "list|||v1|pods|||||a")
	f("GET", "/api/v1/namespaces", "list|||v1|namespaces|||||")
	f("GET", "/api/v1/namespaces/c1", "get|||v1|namespaces||c1|c1||")
	f("GET", "/api/v1/namespaces/c1/status", "get|||v1|namespaces|status|c1|c1||")
	f("PUT", "/api/v1/namespaces/c1/finalize", "update|||v1|namespaces|finalize|c1|c1||")
	f("GET", "/api/v1/nodes/n1", "get|||v1|nodes|||n1||")
	f("GET", "/api/v1/watch/pods?fieldSelector=metadata.name%3Da", "watch|||v1|pods|||||")
	f("POST", "/api/v1/watch/namespaces/c1/pods/a", "watch|||v1|pods||c1|a||")
	f("GET", "/api/v1/watch", none)
	f("GET", "/apis/apps/v1/watch", none)
	f("GET", "/api/v1/proxy/nodes/n1/x", "proxy|||v1|nodes|||n1||")
	f("POST", "/api/v1/namespaces/c1/pods", "create|||v1|pods||c1|||")
	f("PATCH", "/api/v1/namespaces/c1/pods/a", "patch|||v1|pods||c1|a||")
	f("DELETE", "/api/v1/namespaces/c1/pods/a?labelSelector=b", "delete|||v1|pods||c1|a||")
	f("DELETE", "/api/v1/namespaces/c1/pods?labelSelector=b", "deletecollection|||v1|pods||c1|||b")
	f("OPTIONS", "/api/v1/namespaces/c1/pods", "|||v1|pods||c1|||")
	f("GET", "/version", "get|/version||||||||")
	f("HEAD", "/healthz/ping", "head|/healthz/ping||||||||")
	f("GET", "/api/v1", "get|/api/v1||||||||")
	f("GET", "/apis/apps/v1/", "get|/apis/apps/v1/||||||||")
	f("GET", "/", "get|/||||||||")
	f("GET", "//api/v1/pods//", "list|||v1|pods|||||")
	f("GET", "/foo/v1/pods", "get|/foo/v1/pods||||||||")
	f("GET", "api/v1/pods", none)
	f("GET", "/api/v1/%zz", none)
	f("GET", "", none)
}

// FuzzAttributes: a request is about a resource or about a path. What has a name or a selector is
// what the API server would take for that.
func FuzzAttributes(f *testing.F) {
	f.Add("GET", "/api/v1/namespaces/c1/pods/a/log", "watch=1")
	f.Add("GET", "/apis/apps/v1/watch/namespaces/c1/deployments", "fieldSelector=metadata.name%3Da")
	f.Add("DELETE", "/api/v1//pods", "labelSelector=a;b&limit=-1")
	f.Add("GET", "/%2Fapi/v1/x", "watch&fieldSelector=metadata.name=x,metadata.name=y")
	f.Add("", "//", "=&&")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		a, ok := AttributesOf(method, path, query)
		if !ok {
			if a != (Attributes{}) {
				t.Errorf("not asked, and yet %+v", a)
			}
			return
		}
		if a.Path != "" && a != (Attributes{Verb: a.Verb, Path: a.Path}) {
			t.Errorf("both a path and a resource: %+v", a)
		}
		if a.FieldSelector+a.LabelSelector != "" && a.Verb != "list" && a.Verb != "watch" && a.Verb != "deletecollection" {
			t.Errorf("selectors of a %q: %+v", a.Verb, a)
		}
		_ = ReviewRequest{&Identity{name: "a"}, a}.spec()
		_ = Forbidden(&Identity{name: "a"}, a, "")
	})
}
