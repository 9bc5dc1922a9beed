package serve

import "testing"

// TestAcceptsJSON: an Accept header is answered here only if upstream would answer it with plain JSON, or with protobuf while
// plain JSON would do as well (W-40 to W-43).
func TestAcceptsJSON(t *testing.T) {
	const table = "application/json;as=Table;g=meta.k8s.io;v=v1"
	for _, c := range []struct {
		accept string
		want   bool
	}{
		{"", true},
		{"  ", true},
		{"application/json", true},
		{"*/*", true},
		{"application/json, */*", true},
		{"*/*, application/json", true},
		{"application/json;q=0.9", true},
		{"application/json; q=0.9 , */*;q=0.8", true},
		{"application/json;charset=utf-8", true},
		{"application/json;stream=watch", true},
		{"application/json, application/yaml", true},
		{"application/vnd.kubernetes.protobuf,application/json", true},
		{"application/vnd.kubernetes.protobuf;stream=watch,application/json", true},
		{"application/vnd.kubernetes.protobuf, */*", true},
		{"application/json;q=0", true}, // not an exclusion (W-42)
		{"application/json," + table, true},

		{"application/vnd.kubernetes.protobuf", false},
		{"application/vnd.kubernetes.protobuf;stream=watch", false},
		{"application/yaml", false},
		{"application/yaml,application/json", false},
		{"application/json;q=0.5,application/yaml", false},
		{"*/*,application/yaml", false}, // wildcards last among equals
		{"application/cbor,application/json", false},
		{"application/*", false},
		{"text/html", false},
		{"text/html,*/*", false},
		{"garbage", false},
		{"garbage,application/json", false},
		{"APPLICATION/JSON", false},
		{table, false},
		{table + ",application/json", false},
		{"application/json;q=0.9," + table, false},
		{"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", false},
		{"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json", false},
		{"application/json;as=PartialObjectMetadata", false},
		{"application/json;stream=other", false},
		{"application/json;sv=v2", false},
		{"application/json;pretty=1", false}, // harmless upstream; nobody sends it
		{"application/json;q=x", false},
		{"application/json;q=NaN", false},
		{table + ",application/json;q=NaN", false},
		{"application/json;q=NaN," + table, false},
		{"application/json;q=0.1;q=1", false},
		{",", false},
		{"application/json,", true},
		{";", false},
		{"application/json;", true},
	} {
		if got := acceptsJSON(c.accept); got != c.want {
			t.Errorf("%q: got %v, want %v", c.accept, got, c.want)
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
		if got := wantsPretty(c.pretty, c.agent); got != c.want {
			t.Errorf("pretty=%q, %q: got %v, want %v", c.pretty, c.agent, got, c.want)
		}
	}
}
