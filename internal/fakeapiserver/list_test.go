package fakeapiserver

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"spillway/internal/fakeapiserver/rawclient"
)

func TestListEnvelope(t *testing.T) {
	s := server(t, Options{})
	wantBody(t, get(t, s, "/api/v1/namespaces/nope/configmaps"), 200,
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`+"\n")
	wantBody(t, get(t, s, "/apis/example.com/v1/widgets/"), 200,
		`{"apiVersion":"example.com/v1","items":[],"kind":"WidgetList","metadata":{"continue":"","resourceVersion":"1"}}`+
			"\n")
	s.Create(ConfigMaps, "c1", "a", WithData("k", "<&>"))
	s.Create(Widgets, "c1", "w")
	l := get(t, s, "/api/v1/configmaps")
	if body := string(l.Body); !strings.Contains(body, `"items":[{"metadata":{"name":"a","namespace":"c1","uid":`) ||
		!strings.Contains(body, `\u003c\u0026`) {
		t.Errorf("list of a built-in kind: %s", body)
	}
	if l.Header.Get("Cache-Control") != "no-cache, private" || l.Header.Get("Audit-Id") == "" {
		t.Errorf("headers: %v", l.Header)
	}
	if body := string(get(t, s, "/apis/example.com/v1/widgets").Body); !strings.Contains(
		body, `"items":[{"apiVersion":"example.com/v1","kind":"Widget"`) {
		t.Errorf("list of a custom resource: %s", body)
	}
	one := get(t, s, "/api/v1/namespaces/c1/configmaps/a")
	if !strings.HasPrefix(string(one.Body), `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"`) {
		t.Errorf("object: %s", one.Body)
	}
	if p := get(t, s, "/api/v1/configmaps", rawclient.Header("User-Agent", "curl/8")); !strings.HasPrefix(string(p.Body),
		"{\n  \"kind\"") {
		t.Errorf("curl gets it indented: %s", p.Body)
	}
}

func TestListOrderAndSelectors(t *testing.T) {
	s := server(t, Options{})
	for _, key := range []string{"o/z", "o/k", "o-x/z", "o/k-1", "o0x/z", "o/k.1", "o1/z", "o/k0"} {
		ns, name, _ := strings.Cut(key, "/")
		s.Create(Pods, ns, name, WithLabel("app", name), WithField("spec.nodeName", "node-"+ns),
			WithField("status.phase", "Running"))
	}
	wantKeys(t, get(t, s, "/api/v1/pods"), "o-x/z", "o/k", "o/k-1", "o/k.1", "o/k0", "o/z", "o0x/z", "o1/z")
	for query, keys := range map[string][]string{
		"labelSelector=app+in+(k,k0)":                              {"o/k", "o/k0"},
		"labelSelector=%zz&fieldSelector=metadata.name%3Dk":        {"o/k"},
		"fieldSelector=metadata.namespace%3Do-x":                   {"o-x/z"},
		"fieldSelector=spec.nodeName%3Dnode-o1":                    {"o1/z"},
		"fieldSelector=spec.host%3Dnode-o1":                        {"o1/z"},
		"fieldSelector=status.phase!%3DRunning":                    {},
		"fieldSelector=spec.hostNetwork%3Dfalse,metadata.name%3Dk": {"o/k"},
	} {
		t.Run(query, func(t *testing.T) { wantKeys(t, get(t, s, "/api/v1/pods?"+query), keys...) })
	}
	wantKeys(t, get(t, s, "/api/v1/namespaces/o/pods?labelSelector=app=z"), "o/z")
	s.Create(Widgets, "n", "w", WithField("spec.color", "red"), WithField("spec.size", 3))
	s.Create(Widgets, "n", "v", WithField("spec.color", "red"))
	wantKeys(t, get(t, s, "/apis/example.com/v1/widgets?fieldSelector=spec.color%3Dred,spec.size%3D3"), "n/w")
	wantStatus(t, get(t, s, "/api/v1/pods?fieldSelector=spec.foo=1"), 400, "field label not supported: spec.foo")
	wantStatus(t, get(t, s, "/api/v1/configmaps?fieldSelector=zzz=1"), 400,
		`"zzz" is not a known field selector: only "metadata.name", "metadata.namespace"`)
	wantStatus(t, get(t, s, "/api/v1/pods?labelSelector=x,,y"), 400, "found ',', expected: identifier after ','")
}

// Which read a LIST is: the table of W-63.
func TestListReads(t *testing.T) {
	s := server(t, Options{})
	s.Create(ConfigMaps, "n", "a")
	old := s.Create(ConfigMaps, "n", "b")
	s.Create(ConfigMaps, "n", "c")
	now := s.Bump()
	for _, tt := range []struct {
		query string
		rv    uint64
		items int
	}{
		{"", now, 3},
		{"resourceVersion=0", now, 3},
		{"resourceVersion=0&limit=1", now, 3},
		{fmt.Sprintf("resourceVersion=%d", old), now, 3},
		{fmt.Sprintf("resourceVersion=%d&limit=5", old), old, 2},
		{fmt.Sprintf("resourceVersion=%d&resourceVersionMatch=Exact", old), old, 2},
		{fmt.Sprintf("resourceVersion=%d&resourceVersionMatch=NotOlderThan&limit=1", old), now, 1},
		{"resourceVersion=1&resourceVersionMatch=Exact", 1, 0},
	} {
		t.Run(tt.query, func(t *testing.T) {
			l := get(t, s, "/api/v1/configmaps?"+tt.query)
			if l.RV != tt.rv || len(l.Items) != tt.items {
				t.Errorf("want %d items at %d, got %d at %d: %s", tt.items, tt.rv, len(l.Items), l.RV, l.Body)
			}
		})
	}
}

func TestListErrors(t *testing.T) {
	s := server(t, Options{})
	s.Create(ConfigMaps, "n", "a")
	far := get(t, s, "/api/v1/configmaps?resourceVersion=1000")
	wantBody(t, far, 504, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
		`"message":"Timeout: Too large resource version: 1000, current: 2","reason":"Timeout",`+
		`"details":{"causes":[{"reason":"ResourceVersionTooLarge",`+
		`"message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}`+"\n")
	if far.Header.Get("Retry-After") != "1" {
		t.Errorf("no Retry-After: %v", far.Header)
	}
	s.Compact()
	wantBody(t, get(t, s, "/api/v1/configmaps?resourceVersion=1&limit=1"), 410,
		`{"kind":"Status","apiVersion":"v1","metadata":{},`+
			`"status":"Failure","message":"The resourceVersion for the provided list is too old.","reason":"Expired",`+
			`"code":410}`+"\n")
	for query, message := range map[string]string{
		"limit=abc": `strconv.ParseInt: parsing "abc": invalid syntax`,
		"resourceVersion=abc": `invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: ` +
			`parsing "abc": invalid syntax`,
		"timeout=abc":   `invalid timeout specified in the request URL - time: invalid duration "abc"`,
		"continue=abc=": "invalid continue token: continue key is not valid: illegal base64 data at input byte 3",
	} {
		wantStatus(t, get(t, s, "/api/v1/configmaps?"+query), 400, message)
	}
	wantStatus(t, get(t, s, "/api/v1/configmaps?sendInitialEvents=false"), 422,
		`ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list`)
	wantStatus(t, get(t, s, "/api/v1/namespaces/n/configmaps/zz"), 404, `configmaps "zz" not found`)
	wantStatus(t, get(t, s, "/api/v1/namespaces/n/foos"), 404, "the server could not find the requested resource")
	wantStatus(t, get(t, s, "/api/v1/configmaps/a"), 404, "the server could not find the requested resource")
	wantStatus(t, get(t, s, "/api/v1/namespaces/n/nodes"), 404, "the server could not find the requested resource")
	wantBody(t, get(t, s, "/apis/foo.example/v1/foos"), 404, "404 page not found\n")
	wantBody(t, get(t, s, "//api/v1/configmaps"), 404, "404 page not found\n")
	wantBody(t, get(t, s, "/api/v1/namespaces/n/configmaps/a?resourceVersion=abc"), 500,
		`{"kind":"Status","apiVersion":"v1","metadata":{},`+
			`"status":"Failure","message":"resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": `+
			`invalid syntax","code":500}`+"\n")
}

func TestContinue(t *testing.T) {
	s := server(t, Options{})
	for _, name := range []string{"a", "b", "c"} {
		s.Create(ConfigMaps, "c1", name)
	}
	rv := s.Revision()
	first := get(t, s, "/api/v1/namespaces/c1/configmaps?limit=1")
	wantKeys(t, first, "c1/a")
	if raw, _ := base64.RawURLEncoding.DecodeString(first.Continue); string(raw) != fmt.Sprintf(
		`{"v":"meta.k8s.io/v1","rv":%d,"start":"/a\u0000"}`, rv) {
		t.Errorf("token: %s", raw)
	}
	if first.Remaining == nil || *first.Remaining != 2 {
		t.Errorf("remaining: %v", first.Remaining)
	}
	s.Delete(ConfigMaps, "c1", "b")
	rest := get(t, s, "/api/v1/namespaces/c1/configmaps?continue="+first.Continue)
	wantKeys(t, rest, "c1/b", "c1/c")
	if rest.RV != rv || rest.Continue != "" {
		t.Errorf("the rest is at %d, continue %q", rest.RV, rest.Continue)
	}
	wantStatus(t, get(t, s, fmt.Sprintf("/api/v1/namespaces/c1/configmaps?resourceVersion=%d&continue=%s", rv,
		first.Continue)), 400,
		"specifying resource version is not allowed when using continue")
	all := get(t, s, "/api/v1/configmaps?limit=1&labelSelector=!x")
	if raw, _ := base64.RawURLEncoding.DecodeString(all.Continue); !strings.Contains(string(raw), `"/c1/a\u0000"`) ||
		all.Remaining != nil {
		t.Errorf("token %s, remaining %v", raw, all.Remaining)
	}

	s.Compact()
	expired := get(t, s, "/api/v1/namespaces/c1/configmaps?limit=1&continue="+first.Continue)
	wantStatus(t, expired, http.StatusGone, "The provided continue parameter is too old")
	again := get(t, s, "/api/v1/namespaces/c1/configmaps?limit=1&continue="+expired.Failure.Continue)
	wantKeys(t, again, "c1/c")
	if again.RV != s.Revision() {
		t.Errorf("an inconsistent page is at %d, not at %d", again.RV, s.Revision())
	}
}

func TestPartialObjectMetadata(t *testing.T) {
	s := server(t, Options{})
	rv := s.Create(ConfigMaps, "c1", "a", WithData("k", "v"))
	list := rawclient.Header("Accept",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,"+
			"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
	l := get(t, s, "/api/v1/configmaps", list)
	wantKeys(t, l, "c1/a")
	if body := string(l.Body); !strings.HasPrefix(
		body, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":`) ||
		!strings.Contains(body, `[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"`) ||
		strings.Contains(body, "data\":{\"k") {
		t.Errorf("list: %s", body)
	}
	wantBody(t, get(t, s, "/api/v1/namespaces/nope/configmaps", list), 200,
		fmt.Sprintf(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",`+
			`"metadata":{"resourceVersion":"%d"},"items":null}`, rv)+"\n")
	w := watch(t, s, "/api/v1/configmaps?watch=1&allowWatchBookmarks=1",
		rawclient.Header("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"))
	expect(t, w, fmt.Sprintf("ADDED c1/a %d", rv), fmt.Sprintf("BOOKMARK %d end", rv))
	for _, e := range w.Events() {
		if !strings.HasPrefix(string(e.Raw), `{"kind":"PartialObjectMetadata",`) {
			t.Errorf("event: %s", e.Line)
		}
	}
	wantStatus(t, get(t, s, "/api/v1/configmaps", rawclient.Header("Accept", "application/xml")), 406,
		"only the following media types are accepted")
}

func TestGzipOfLists(t *testing.T) {
	s := server(t, Options{})
	s.Create(ConfigMaps, "n", "big", WithPadding(200<<10))
	accept := rawclient.Header("Accept-Encoding", "br, gzip")
	if l := get(t, s, "/api/v1/configmaps", accept); l.Header.Get("Content-Encoding") != "gzip" || len(l.Items) != 1 {
		t.Errorf("a large list: %v", l.Header)
	}
	if l := get(t, s, "/api/v1/configmaps", rawclient.Header("Accept-Encoding", "gzip;q=1")); l.Header.Get(
		"Content-Encoding") != "" {
		t.Errorf("q values do not count: %v", l.Header)
	}
	if l := get(t, s, "/api/v1/secrets", accept); l.Header.Get("Content-Encoding") != "" {
		t.Errorf("a small list: %v", l.Header)
	}
}
