// Package negotiation compares how requests are negotiated here with kube-apiserver's own code: the
// router's stage and the handlers' (W-9, W-10, W-40 to W-44).
package negotiation

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/emicklei/go-restful/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/registry/rest"

	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/fanout"
	"spillway/internal/object"
	"spillway/internal/plan"
	"spillway/internal/source"
)

var (
	configmaps = object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", true,
		true)
	widgets = object.NewResource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
		"Widget", true, false)
)

// catalog mirrors both.
type catalog map[schema.GroupVersionResource]*source.Source

func (c catalog) Find(gvr schema.GroupVersionResource) *source.Source { return c[gvr] }

func (c catalog) Knows(gvr schema.GroupVersionResource) bool { return c[gvr] != nil }

func (catalog) Soon(schema.GroupVersionResource) bool { return false }

func newPlanner(t testing.TB) *plan.Planner {
	t.Helper()
	release := codec.SchemaVersionOf(37)
	release.SetUpstream("37")
	mirrored := catalog{}
	for _, info := range []*object.Resource{configmaps, widgets} {
		r := cache.New(info, cache.HistoryLimits{HistoryBytes: 1 << 20, HistoryMinAge: time.Hour}, time.Now)
		if err := r.Replace(nil, 100); err != nil {
			t.Fatal(err)
		}
		mirrored[info.GVR] = &source.Source{Hub: fanout.NewHub(r), Codec: codec.New(info, release)}
	}
	return &plan.Planner{Catalog: mirrored, WatchTimeout: func() time.Duration { return time.Minute }}
}

// codecs offers what kube-apiserver does by default.
var codecs = serializer.NewCodecFactory(runtime.NewScheme())

// scope is a kube-apiserver's handler of a resource, as far as it negotiates.
func scope(info *object.Resource) *handlers.RequestScope {
	s := &handlers.RequestScope{Serializer: codecs, MetaGroupVersion: metav1.SchemeGroupVersion,
		TableConvertor: rest.NewDefaultTableConvertor(schema.GroupResource{})}
	if !info.Builtin { // see apiextensions-apiserver: everything but protobuf
		for _, i := range codecs.SupportedMediaTypes() {
			if i.MediaType != runtime.ContentTypeProtobuf {
				s.StandardSerializers = append(s.StandardSerializers, i)
			}
		}
	}
	return s
}

// routed reports what the router decides that stands in front of the handlers of built-in
// resources.
func routed(r *http.Request) bool {
	reached := false
	ws := new(restful.WebService)
	ws.Route(ws.GET("/").Produces(runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf).
		To(func(*restful.Request, *restful.Response) { reached = true }))
	container := restful.NewContainer()
	container.Router(restful.CurlyRouter{})
	container.Add(ws)
	container.ServeHTTP(httptest.NewRecorder(), r)
	return reached
}

// form is an answer's, where it is one that can be made from memory.
type form struct {
	media  string
	view   object.View
	pretty bool
}

// forPeople reports that upstream alone makes the answer: it is YAML or indented.
func (f form) forPeople() bool { return f.pretty || f.media == runtime.ContentTypeYAML }

// upstream is what kube-apiserver answers in; ok is false where it refuses, or where only it makes
// the answer.
func upstream(t testing.TB, info *object.Resource, collection, watch bool, r *http.Request) (f form, ok bool) {
	t.Helper()
	if info.Builtin && !routed(r) {
		return form{}, false
	}
	s := scope(info)
	options, chosen, err := negotiation.NegotiateOutputMediaType(r, codecs, s)
	if err != nil {
		return form{}, false
	}
	f.media = chosen.MediaType
	if watch {
		stream, err := negotiation.NegotiateOutputMediaTypeStream(r, codecs, s)
		if err != nil {
			return form{}, false
		}
		f.media = stream.MediaType
	} else {
		f.pretty = chosen.PrettySerializer != nil && chosen.Serializer == chosen.PrettySerializer
	}
	if options.Convert == nil {
		return f, true
	}
	kind := "PartialObjectMetadata"
	if collection && !watch {
		kind = "PartialObjectMetadataList"
	}
	f.view = object.Metadata
	if options.Convert.Version == "v1beta1" {
		f.view = object.MetadataV1beta1
	}
	return f, options.Convert.Kind == kind
}

// targets are a LIST, a GET and a WATCH of each kind of resource.
var targets = []struct {
	info              *object.Resource
	path, query       string
	collection, watch bool
}{
	{configmaps, "/api/v1/configmaps", "resourceVersion=0", true, false},
	{configmaps, "/api/v1/namespaces/n/configmaps/a", "resourceVersion=0", false, false},
	{configmaps, "/api/v1/configmaps", "resourceVersion=0&watch=1", true, true},
	{widgets, "/apis/example.com/v1/widgets", "resourceVersion=0", true, false},
	{widgets, "/apis/example.com/v1/namespaces/n/widgets/a", "resourceVersion=0", false, false},
	{widgets, "/apis/example.com/v1/widgets", "resourceVersion=0&watch=1", true, true},
}

// check compares all targets for one Accept header.
func check(t *testing.T, planner *plan.Planner, accept, pretty, agent string) {
	t.Helper()
	for _, target := range targets {
		query := target.query
		if pretty != "" {
			query += "&pretty=" + url.QueryEscape(pretty)
		}
		r := httptest.NewRequest(http.MethodGet, "/?"+query, nil)
		r.Header.Set("Accept", accept)
		r.Header.Set("User-Agent", agent)
		want, ok := upstream(t, target.info, target.collection, target.watch, r)

		candidate, _ := planner.Consider(plan.Request{
			Method: http.MethodGet, Path: target.path, RawQuery: query, Accept: accept, UserAgent: agent, Plain: true,
		})
		made := planner.Decide(candidate)
		got, here := form{media: made.Encoding.MediaType(), view: made.Encoding.View},
			made.Action != plan.Upstream
		switch {
		case here && !ok:
			t.Errorf("%s?%s, Accept %q: answered here in %+v, and upstream would not", target.path, query, accept, got)
		case !here && ok && !want.forPeople() && !mentionsCBOR(accept):
			t.Errorf("%s?%s, Accept %q: passes through, and upstream answers in %+v", target.path, query, accept, want)
		case here && got != want:
			t.Errorf("%s?%s, Accept %q: answered here in %+v, upstream in %+v", target.path, query, accept, got, want)
		}
	}
}

// mentionsCBOR: whether an API server offers CBOR cannot be known, so it decides.
func mentionsCBOR(accept string) bool { return strings.Contains(accept, "cbor") }

const asList = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// FuzzNegotiation: whatever Accept header a client sends, it is answered here in the form that
// kube-apiserver would answer in, or passes through; and it passes through only where
// kube-apiserver refuses, or makes a table.
func FuzzNegotiation(f *testing.F) {
	for _, accept := range []string{
		"", "*/*", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/json, */*",
		"*/*,application/yaml",
		"application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf;stream=watch, */*;q=0.5",
		"application/*",
		"application/json;q=0.5,application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
		"application/json" + asList,
		"application/vnd.kubernetes.protobuf" + asList + ",application/json" + asList + ",application/json",
		"application/json;as=PartialObjectMetadata",
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1", "application/json;stream=other",
		"application/yaml;stream=watch,application/json",
		"application/json;sv=v1", "application/json;sv=v2", "application/json;pretty=1", "application/json;q=x",
		"application/json;q=NaN,*/*", "text/html,*/*",
		"garbage,application/json", "APPLICATION/JSON", ",", ";", "application/json;", " application/json ; charset=utf-8 ",
		"application/cbor,application/json",
		"a/b/c,*,application/json;q=0.1;q=1", "*;q=0.3,application/yaml;q=0.2",
		"application/json;as=Foo;g=meta.k8s.io;v=v1,application/json",
		"application/yaml;q=0.1,application/json;q=0.1,application/vnd.kubernetes.protobuf;q=0.1,*/*;q=0.1,application/*",
	} {
		f.Add(accept, "", "")
		f.Add(accept, "true", "")
		f.Add(accept, "no", "curl/8.5.0")
	}
	planner := newPlanner(f)
	f.Fuzz(func(t *testing.T, accept, pretty, agent string) { check(t, planner, accept, pretty, agent) })
}
