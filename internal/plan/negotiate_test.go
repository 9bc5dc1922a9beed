package plan

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/codec"
	"spillway/internal/object"
	"spillway/internal/source"
	"spillway/internal/source/sourcetest"
)

var definitions = object.NewResource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"},
	"CustomResourceDefinition", false, true)

// inWords is a negotiated form: format and view; and the form of a failure, if it is another.
func (f AnswerForm) inWords() string {
	formats := map[object.Format]string{object.JSON: "json", object.YAML: "yaml", object.Protobuf: "protobuf"}
	words := formats[f.Format] + map[object.View]string{object.Metadata: " metadata",
		object.MetadataV1beta1: " metadata beta"}[f.View]
	failure := formats[f.Failure.Format]
	if f.Failure.Indented {
		failure += " pretty"
	}
	if failure != words {
		words += ", failing in " + failure
	}
	return words
}

// TestNegotiate is W-9, W-10 and W-40 to W-46. What upstream refuses or makes itself is "upstream".
func TestNegotiate(t *testing.T) {
	const (
		proto = "application/vnd.kubernetes.protobuf"
		table = "application/json;as=Table;g=meta.k8s.io;v=v1"
		one   = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		list  = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	)
	pods := sourcetest.New(t, sourcetest.Pods, sourcetest.Unreachable{}, 1).Hub
	builtin := requestedForm{isCollection: true,
		source: &source.Source{Hub: pods, Codec: sourcetest.NewCodec(sourcetest.Pods)}}
	custom := requestedForm{source: sourcetest.New(t, sourcetest.Widgets, sourcetest.Unreachable{}, 1), isCollection: true}
	typeless := requestedForm{source: sourcetest.New(t, definitions, sourcetest.Unreachable{}, 1), isCollection: true}
	old := requestedForm{source: &source.Source{Hub: pods, Codec: codec.New(sourcetest.Pods, nil)}, isCollection: true}
	watch := func(a requestedForm) requestedForm { a.isWatch = true; return a }
	object := func(a requestedForm) requestedForm { a.isCollection = false; return a }
	f := func(a requestedForm, accept, want string) {
		t.Helper()
		got := "upstream"
		if form, ok := negotiate(Request{Accept: accept}, nil, a); ok {
			got = form.inWords()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", accept, got, want)
		}
	}
	for _, a := range []requestedForm{builtin, custom, object(builtin), watch(builtin), watch(custom)} {
		f(a, "", "json")
		f(a, "application/json", "json")
		f(a, "*/*", "json")
		f(a, "application/json, */*", "json")
		f(a, "application/json; q=0.9 , */*;q=0.8", "json")
		f(a, "application/json;charset=utf-8", "json")
		f(a, "application/json;stream=watch", "json")
		f(a, "application/json;sv=v1", "json, failing in json pretty")
		f(a, "application/json;q=0", "json") // not an exclusion
		f(a, "application/json;q=x", "json")
		f(a, "application/json,", "json")
		f(a, "application/json;", "json")
		f(a, "text/html,application/json", "json")
		f(a, "text/html,*/*", "json")
		f(a, table, "upstream")
		f(a, table+",application/json", "upstream")
		f(a, "application/json;q=0.9,"+table, "upstream")
		f(a, "application/cbor,application/json", "upstream")
		f(a, "application/json,application/cbor", "json")
		f(a, "application/cbor-seq", "upstream")
		f(a, "text/html", "upstream")
		f(a, "garbage", "upstream")
		f(a, ",", "upstream")
		f(a, ";", "upstream")
		f(a, "APPLICATION/JSON", "upstream")
		f(a, "application/json;stream=other", "upstream")
		f(a, "application/json;sv=v2", "upstream")
		f(a, "application/json;as=PartialObjectMetadata", "upstream")
		f(a, "application/json;as=Foo;g=meta.k8s.io;v=v1,application/json", "json")
	}
	for _, a := range []requestedForm{builtin, object(builtin), watch(builtin)} {
		f(a, proto, "protobuf")
		f(a, proto+",application/json", "protobuf")
		f(a, proto+";stream=watch,application/json", "protobuf")
		f(a, "application/json,"+proto, "json")
		f(a, "application/json;q=0.5,"+proto, "protobuf")
		f(a, "application/*", "upstream")
		f(a, "application/*,application/json", "json")
	}
	for _, a := range []requestedForm{custom, watch(custom)} {
		f(a, proto, "upstream")
		f(a, proto+",application/json", "json, failing in protobuf")
		f(a, "application/*", "json")
	}
	f(builtin, "application/yaml", "upstream")
	f(custom, "application/yaml", "upstream")
	f(object(builtin), "application/yaml", "upstream")
	f(builtin, "application/yaml,application/json", "upstream")
	f(builtin, "application/json,application/yaml", "json")
	f(builtin, "application/yaml;stream=watch,application/json", "json")
	f(builtin, "*/*,application/yaml", "upstream") // wildcards last among equals
	f(watch(builtin), "application/yaml", "upstream")
	f(watch(builtin), "application/yaml,application/json", "upstream")

	for _, a := range []requestedForm{builtin, custom} {
		f(a, "application/json"+list, "json metadata, failing in json pretty")
		f(a, "application/json"+list+",application/json", "json metadata, failing in json")
		f(a, strings.ReplaceAll("application/json"+list, "v=v1", "v=v1beta1"), "json metadata beta, failing in json pretty")
		f(a, "application/yaml"+list, "upstream")
		f(a, "application/json"+list+",application/yaml", "json metadata, failing in yaml")
		f(a, proto+list+",application/json"+list+",application/json", "protobuf metadata, failing in json")
		f(a, "application/json"+one, "upstream") // a list asked as single
		f(object(a), "application/json"+one, "json metadata, failing in json pretty")
		f(object(a), "application/json"+list, "upstream")
		f(watch(a), "application/json"+one, "json metadata, failing in json pretty")
		f(watch(a), proto+one+",application/json"+one, "protobuf metadata, failing in json pretty")
		f(watch(a), "application/json"+list, "upstream")
		f(a, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v2", "upstream")
	}
	// Where protobuf cannot be made, JSON will do if it shows the same.
	for _, a := range []requestedForm{typeless, old} {
		f(a, proto, "upstream")
		f(a, proto+",application/json", "json, failing in protobuf")
		f(a, proto+",application/json"+list, "upstream")
		f(a, proto+","+table+",application/json", "upstream")
	}
	f(typeless, proto+list, "protobuf metadata, failing in json pretty")
	f(old, proto+list+",application/json"+list, "json metadata, failing in json pretty")
	f(old, proto+list+",application/json", "upstream")
}

// TestNegotiatePretty is W-9: it never applies to watches, and to nothing but JSON; to failures it
// does. JSON that is indented is upstream's.
func TestNegotiatePretty(t *testing.T) {
	source := sourcetest.New(t, sourcetest.Pods, sourcetest.Unreachable{}, 1)
	f := func(r Request, a requestedForm, want string) {
		t.Helper()
		a.source = source
		form, ok := negotiate(r, r.Query(), a)
		if got := form.inWords(); ok != (want != "upstream") || ok && got != want {
			t.Errorf("%+v: got %q, %t; want %q", r, got, ok, want)
		}
	}
	f(Request{RawQuery: "pretty=1"}, requestedForm{}, "upstream")
	f(Request{RawQuery: "pretty=1"}, requestedForm{isCollection: true}, "upstream")
	f(Request{UserAgent: "curl/8.5.0"}, requestedForm{isCollection: true}, "upstream")
	f(Request{RawQuery: "pretty=0", UserAgent: "curl/8.5.0"}, requestedForm{isCollection: true}, "json")
	f(Request{Accept: "application/json;pretty=1"}, requestedForm{}, "upstream")
	f(Request{Accept: "application/json;pretty=true"}, requestedForm{}, "json")
	f(Request{Accept: "application/vnd.kubernetes.protobuf", RawQuery: "pretty=1"}, requestedForm{}, "protobuf")
	f(Request{RawQuery: "pretty=1"}, requestedForm{isCollection: true, isWatch: true}, "json, failing in json pretty")
}

// TestAcceptsGzip is W-6.
func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"gzip": true, "br, gzip": true, " gzip ,br": true, "": false, "gzip;q=1.0": false, "GZIP": false, "*": false,
		"identity": false,
	} {
		if got := acceptsGzip(header); got != want {
			t.Errorf("%q: %v", header, got)
		}
	}
}

// TestWantsPretty is W-9.
func TestWantsPretty(t *testing.T) {
	for _, c := range []struct {
		pretty, agent string
		want          bool
	}{
		{"", "", false},
		{"", "kubectl/v1.37.1", false},
		{"", "curl/8.5.0", true},
		{"", "Wget/1.21", true},
		{"", "Mozilla/5.0 (X11; Linux)", true},
		{"", "Mozilla/4.0", false},
		{"", "libcurl/8", false},
		{"1", "", true},
		{"true", "kubectl", true},
		{"0", "curl/8.5.0", false},
		{"false", "curl/8.5.0", false},
		{"maybe", "curl/8.5.0", false},
	} {
		if got := WantsPretty(c.pretty, c.agent); got != c.want {
			t.Errorf("pretty=%q, %q: got %v, want %v", c.pretty, c.agent, got, c.want)
		}
	}
}

// An Accept header becomes many times as large when it is read, so that one with more elements than
// any client has use for is not read here: what it asks for passes through, and refusals are JSON.
func TestAcceptOfManyElementsIsNotRead(t *testing.T) {
	for accept, read := range map[string]bool{
		strings.Repeat("*,", acceptElementsLimit-1):                      true,
		strings.Repeat("*,", acceptElementsLimit):                        false,
		"application/json" + strings.Repeat(";a=1", acceptElementsLimit): false,
	} {
		if _, ok := NegotiateFailure(accept, false); ok != read {
			t.Errorf("%d bytes: %v, want %v", len(accept), ok, read)
		}
	}
}
