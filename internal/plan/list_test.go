package plan

import (
	"encoding/base64"
	"testing"

	"spillway/internal/source/sourcetest"
)

// token is a continue token as upstream makes them (W-80).
func token(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// TestPlanList is the table of W-63, and what stands around it.
func TestPlanList(t *testing.T) {
	p := testPlanner(t)
	good := token(`{"v":"meta.k8s.io/v1","rv":90,"start":"/c1/b\u0000"}`)
	recent := token(`{"v":"meta.k8s.io/v1","rv":-1,"start":"/c1/b\u0000"}`)
	const malformed = `400 invalid resource version: resourceVersion: Invalid value: "`
	for _, c := range []struct{ rule, query, want string }{
		{"W-63 most recent", "", "pods list >=0 proven"},
		{"W-63 most recent", "limit=500", "pods list >=0 limit 500 proven"},
		{"W-24 empty is absent", "resourceVersion=&continue=&resourceVersionMatch=", "pods list >=0 proven"},
		{"W-63 any", "resourceVersion=0", "pods list >=0"},
		{"W-63 any has no limit", "resourceVersion=0&limit=5", "pods list >=0"},
		{"W-63 any", "resourceVersion=0&resourceVersionMatch=NotOlderThan", "pods list >=0"},
		{"W-63 any has no limit", "resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=5", "pods list >=0"},
		{"W-63 not older", "resourceVersion=90", "pods list >=90"},
		{"W-63 legacy exact", "resourceVersion=90&limit=5", "pods list =90 limit 5"},
		{"W-63 not older, limit", "resourceVersion=90&limit=5&resourceVersionMatch=NotOlderThan", "pods list >=90 limit 5"},
		{"W-63 exact", "resourceVersion=90&resourceVersionMatch=Exact", "pods list =90"},
		{"W-63 exact, limit", "resourceVersion=90&resourceVersionMatch=Exact&limit=3", "pods list =90 limit 3"},
		{"W-26 negative is none", "resourceVersion=90&limit=-3", "pods list >=90"},
		{"W-65 future", "resourceVersion=900", "pods list >=900"},
		{"W-65 future, exact", "resourceVersion=900&limit=1", "pods list =900 limit 1"},
		{"W-28 no time to wait", "resourceVersion=900&timeout=2s", "pods list >=900 hurried"},
		{"W-28 no time to wait", "resourceVersion=900&timeout=3s", "pods list >=900 hurried"},
		{"W-28 time to wait", "resourceVersion=900&timeout=5s", "pods list >=900"},
		{"W-27 leading zeros", "resourceVersion=0090", "pods list >=90"},
		{"W-27 leading zeros", "resourceVersion=0090&limit=1", "pods list =90 limit 1"},
		{"W-27 zeros are not zero: any", "resourceVersion=00", "pods list >=0"},
		{"W-80 zeros are not zero: the store's token", "resourceVersion=00&limit=5", "upstream"},
		{"W-80 zeros are not zero: the store's token", "resourceVersion=00&limit=5&resourceVersionMatch=Exact", "upstream"},
		{"W-27 zeros are not zero: exact", "resourceVersion=00&resourceVersionMatch=Exact", "pods list >=0 proven"},
		{"W-27 zeros are not zero: any, a limit", "resourceVersion=00&resourceVersionMatch=NotOlderThan&limit=5",
			"pods list >=0 limit 5"},
		{"W-27 zeros are not zero: continue", "resourceVersion=00&continue=" + good,
			"400 specifying resource version is not allowed when using continue"},
		{"W-27 the largest", "resourceVersion=18446744073709551615", "pods list >=18446744073709551615"},
		{"W-27", "resourceVersion=-1", malformed + `-1": strconv.ParseUint: parsing "-1": invalid syntax`},
		{"W-27", "resourceVersion=%2B5", malformed + `+5": strconv.ParseUint: parsing "+5": invalid syntax`},
		{"W-27", "resourceVersion=99999999999999999999",
			malformed + `99999999999999999999": strconv.ParseUint: parsing "99999999999999999999": value out of range`},

		{"W-35 a name", "resourceVersion=0&fieldSelector=metadata.name%3Da", "pods in /a list >=0"},
		{"W-35 two names", "resourceVersion=0&fieldSelector=metadata.name%3Da,metadata.name%3Db", "pods in /a list >=0"},
		{"W-69 one key", "resourceVersion=90&limit=1&fieldSelector=metadata.name%3Da,metadata.namespace%3Dc1",
			"pods in c1/a list >=90 limit 1 alone"},
		{"W-69 one key, exact",
			"resourceVersion=90&resourceVersionMatch=Exact&fieldSelector=metadata.name%3Da,metadata.namespace%3Dc1",
			"pods in c1/a list =90 alone"},
		{"W-69 no such namespace can be",
			"resourceVersion=90&limit=1&fieldSelector=metadata.name%3Da,metadata.namespace%3DC_1",
			"pods in /a list =90 limit 1"},
		{"W-69 no such name can be", "resourceVersion=90&limit=1&fieldSelector=metadata.name%3D..,metadata.namespace%3Dc1",
			"upstream"},
		{"W-68 the store waits for nothing",
			"resourceVersion=900&limit=1&fieldSelector=metadata.name%3Da,metadata.namespace%3Dc1", "upstream"},
		{"W-68 the cache waits", "resourceVersion=900&fieldSelector=metadata.name%3Da,metadata.namespace%3Dc1",
			"pods in c1/a list >=900 alone"},
		{"W-71 a namespace", "resourceVersion=90&fieldSelector=metadata.namespace%3Dc1", "pods in c1/ list >=90"},
		{"W-71 a namespace, a limit that is none", "resourceVersion=0&limit=1&fieldSelector=metadata.namespace%3Dc1",
			"pods in c1/ list >=0"},
		{"W-71 a namespace, the first page", "resourceVersion=90&limit=1&fieldSelector=metadata.namespace%3Dc1", "upstream"},
		{"W-71 a namespace, the next page", "limit=1&fieldSelector=metadata.namespace%3Dc1&continue=" + good,
			`pods list =90 limit 1 from "c1/b\x00"`},
		{"W-71 a namespace, and not", "resourceVersion=90&limit=1&fieldSelector=metadata.namespace%21%3Dc1",
			"pods list =90 limit 1"},
		{"W-152", "resourceVersion=0&fieldSelector=spec.nodeName%3Da", "pods list >=0"},

		{"W-63 continue", "continue=" + good, `pods list =90 from "c1/b\x00"`},
		{"W-81 another limit", "limit=2&continue=" + good, `pods list =90 limit 2 from "c1/b\x00"`},
		{"W-63 continue at any version", "resourceVersion=0&continue=" + good, `pods list =90 from "c1/b\x00"`},
		{"W-63 any version honours no limit", "resourceVersion=0&limit=2&continue=" + good, `pods list =90 from "c1/b\x00"`},
		{"W-81 the scan is the whole scope", "limit=1&fieldSelector=metadata.name%3Da,metadata.namespace%3Dc1&continue=" +
			good,
			`pods in /a list =90 limit 1 from "c1/b\x00"`},
		{"W-83 most recent", "continue=" + recent, `pods list >=0 from "c1/b\x00" proven`},
		{"W-83 most recent", "limit=2&resourceVersion=0&continue=" + recent, `pods list >=0 from "c1/b\x00" proven`},
		{"W-68 future", "continue=" + token(`{"v":"meta.k8s.io/v1","rv":900,"start":"/a\u0000"}`),
			`pods list =900 from "a\x00"`},
		{"W-63 continue with a version", "resourceVersion=90&continue=" + good,
			"400 specifying resource version is not allowed when using continue"},
		{"W-30 the token first", "resourceVersion=abc&continue=x!",
			"400 invalid continue token: continue key is not valid: illegal base64 data at input byte 1"},
		{"W-80 without the slash", "continue=" + token(`{"v":"meta.k8s.io/v1","rv":90,"start":"c1/b\u0000"}`),
			`pods list =90 from "c1/b\x00"`},
		{"W-81 inclusive", "continue=" + token(`{"v":"meta.k8s.io/v1","rv":90,"start":"/c1/b"}`),
			`pods list =90 from "c1/b"`},
		{"W-81 from the beginning", "continue=" + token(`{"v":"meta.k8s.io/v1","rv":90,"start":"/"}`), "pods list =90"},
	} {
		if got := p.Plan(Request{Method: "GET", Path: podsPath, RawQuery: c.query, Plain: true}).text(); got != c.want {
			t.Errorf("%s: %s:\ngot  %q\nwant %q", c.rule, c.query, got, c.want)
		}
	}
}

// TestPlanTokens is W-82.
func TestPlanTokens(t *testing.T) {
	p := testPlanner(t)
	good := token(`{"v":"meta.k8s.io/v1","rv":90,"start":"/c1/b\u0000"}`)
	for _, c := range []struct{ token, want string }{
		{good + "==", "illegal base64 data at input byte 70"},
		{token("hello"), "invalid character 'h' looking for beginning of value"},
		{token(""), ""},
		{token(`{"v":"meta.k8s.io/v1","rv":0,"start":"/c1/b\u0000"}`),
			"incorrect encoded start resourceVersion (version meta.k8s.io/v1)"},
		{token(`{"v":"v1","rv":90,"start":"/c1/b\u0000"}`), "server does not recognize this encoded version v1"},
		{token(`{}`), "server does not recognize this encoded version "},
		{token(`null`), "server does not recognize this encoded version "},
		{token(`{"v":"meta.k8s.io/v1","rv":90,"start":""}`), "encoded start key empty (version meta.k8s.io/v1)"},
		{token(`{"v":"meta.k8s.io/v1","rv":90,"start":"../c2/a\u0000"}`), "../c2/a\x00"},
		{token(`{"v":"meta.k8s.io/v1","rv":-1,"start":"//c2/a\u0000"}`), "//c2/a\x00"},
	} {
		want := "400 invalid continue token: continue key is not valid: " + c.want
		if c.token == "" {
			want = "pods list >=0 limit 1 proven" // an empty one is none
		}
		if got := p.Plan(Request{Method: "GET", Path: podsPath, RawQuery: "limit=1&continue=" + c.token,
			Plain: true}).text(); got != want {
			t.Errorf("%s:\ngot  %q\nwant %q", c.token, got, want)
		}
	}
	for _, text := range []string{`{"rv":"90"}`, `[]`, `{"rv":1.5}`, `{"rv":99999999999999999999}`} {
		if got := p.Plan(Request{Method: "GET", Path: podsPath, RawQuery: "continue=" + token(text),
			Plain: true}).text(); got != "upstream" {
			t.Errorf("%s names upstream's types: got %q", text, got)
		}
	}
}

// A page that is full looks for more in what upstream scans: what is on one node, where it has an
// index of that (W-69).
func TestPlanScanned(t *testing.T) {
	p := testPlanner(t)
	elsewhere := sourcetest.ParseOne(t, sourcetest.Pods, "c1/c 8")
	onNode, err := sourcetest.Pods.Parse(
		[]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","namespace":"c1","uid":"u",` +
			`"resourceVersion":"7"},"spec":{"nodeName":"n"}}`))
	if err != nil {
		t.Fatal(err)
	}
	const node = "&fieldSelector=spec.nodeName%3Dn,status.phase%3DRunning"
	for _, c := range []struct {
		query string
		whole bool
	}{
		{"limit=1" + node, false},
		{"limit=1&fieldSelector=spec.host%3Dn", false},
		{"limit=1&resourceVersion=90&resourceVersionMatch=NotOlderThan" + node, false},
		{"limit=1&resourceVersion=90" + node, true},
		{"limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":-1,"start":"/c1/a\u0000"}`) + node, true},
		{"limit=1&fieldSelector=spec.nodeName%21%3Dn", true},
		{"limit=1&fieldSelector=status.phase%3DRunning", true},
		{"limit=1&labelSelector=a%3Db", true},
	} {
		plan := p.Plan(Request{Method: "GET", Path: podsPath, RawQuery: c.query, Plain: true})
		if plan.List == nil {
			t.Fatalf("%s: %s", c.query, plan.text())
		}
		if s := plan.List.Scanned; !s.Matches(onNode) || s.Matches(elsewhere) != c.whole {
			t.Errorf("%s: scans %s", c.query, s.Key())
		}
	}
}
