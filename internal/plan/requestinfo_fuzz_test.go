package plan

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// resolver is what kube-apiserver reads paths with, whatever package requestinfo makes of it.
var resolver = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api")}

// FuzzTargetIsWhatUpstreamReads: a path that names a target names the same to kube-apiserver,
// whatever the plurals of custom resources are.
func FuzzTargetIsWhatUpstreamReads(f *testing.F) {
	segments := []string{"namespaces", "a", "watch", "proxy", "status", ""}
	for _, prefix := range []string{"/api/v1", "/apis/y.io/v1"} {
		for _, first := range segments {
			for _, second := range segments {
				for _, third := range segments {
					f.Add(strings.TrimRight(prefix+"/"+first+"/"+second+"/"+third, "/"))
				}
			}
		}
	}
	for _, path := range []string{"//api/v1/pods", "/api/v1/namespaces/a/finalize", "/api/v1/namespaces/a/pods/x/log",
		"/api/v1/watch/namespaces/a/pods/x", "/api/v1/namespaces//pods/x", "/api/v1/pods/",
		"/api/v1/%6eamespaces/a", "/apis/y.io/v1/namespaces%2Fa", "/apis//v1/pods",
		"/api/v1/pods//", "/apis/g/v1//a", "/API/v1/pods", "/api/v2/pods", "/apis/y.io/v1/watch/namespaces/a/namespaces/b"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		target, ok := ParseTarget(path)
		if !ok {
			return
		}
		u, err := url.ParseRequestURI(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := resolver.NewRequestInfo(&http.Request{Method: http.MethodGet, URL: u})
		if err != nil {
			t.Fatalf("%q: upstream: %v", path, err)
		}
		namespace := target.namespace
		if target.gvr.Group == "" && target.gvr.Resource == "namespaces" && namespace == "" && !target.hasEmptyNamespace {
			namespace = target.name // upstream takes them to be in themselves
		}
		if !info.IsResourceRequest || info.APIGroup != target.gvr.Group || info.APIVersion != target.gvr.Version ||
			info.Resource != target.gvr.Resource || info.Subresource != "" || info.Name != target.name ||
			info.Namespace != namespace || (info.Verb == "watch") != target.isWatchPath {
			t.Errorf("%q: %+v, upstream reads %+v", path, target, info)
		}
	})
}
