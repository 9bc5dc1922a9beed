package requestinfo

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// readWhole is what kube-apiserver does, with all segments.
func readWhole(method, path, query string) (*request.RequestInfo, error) {
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return nil, err
	}
	u.RawQuery = query
	return factory.NewRequestInfo(&http.Request{Method: method, URL: u})
}

// FuzzSegmentsBeyondTheLimitChangeNothing: a path that is cut is read as the whole one.
func FuzzSegmentsBeyondTheLimitChangeNothing(f *testing.F) {
	slashes := strings.Repeat("/", segmentsLimit+4)
	segments := strings.Repeat("/a", segmentsLimit+4)
	for _, path := range []string{
		"/api/v1/namespaces/a/pods/x", "/api/v1/namespaces" + slashes, "/api/v1/namespaces" + slashes + "x",
		slashes + "api/v1/pods", slashes, slashes + "x", "/api/v1/pods" + slashes + "a", "/api/v1/watch" + slashes,
		"/api/v1/watch" + slashes + "x", "/apis/g/v1/namespaces/a" + slashes + "status",
		"/api/v1/proxy/nodes/n" + segments, "/apis/g/v1/watch/namespaces/a/pods/x/log" + segments,
		"/api%2fv1%2Fpods/%zz", "/x" + segments,
	} {
		f.Add("GET", path, "watch=1")
		f.Add("DELETE", path, "")
	}
	f.Fuzz(func(t *testing.T, method, path, query string) {
		if !strings.HasPrefix(path, "/") || strings.Contains(query, "%") {
			return
		}
		got, gotErr := Read(method, path, query)
		want, wantErr := readWhole(method, path, query)
		if (gotErr == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, want %v", path, gotErr, wantErr)
		}
		if gotErr != nil {
			return
		}
		got.Parts, want.Parts = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s %q?%s:\ngot  %+v\nwant %+v", method, path, query, got, want)
		}
	})
}

func TestMemoryOfAReadingDoesNotGrowWithTheSegments(t *testing.T) {
	path := "/api/v1/nodes" + strings.Repeat("/a", 100_000)
	kept := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := ReadPath(path); err != nil {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if kept > 8<<10 {
		t.Errorf("%d bytes", kept)
	}
}

func TestAPathWithoutASlashInFrontIsNotRead(t *testing.T) {
	for _, path := range []string{"", "api/v1/pods", "https://host/api/v1/pods", "*"} {
		if info, err := ReadPath(path); err == nil {
			t.Errorf("%q: %+v", path, info)
		}
	}
}
