package plan

import (
	"strings"
	"testing"

	"spillway/internal/source/sourcetest"
)

// TestPlanWatch is the table of W-100, and what stands around it.
func TestPlanWatch(t *testing.T) {
	p := testPlanner(t)
	const notOlder = "&resourceVersionMatch=NotOlderThan"
	const invalid = `422 ListOptions.meta.k8s.io "" is invalid: `
	for _, c := range []struct{ rule, query, want string }{
		{"W-101 consistent", "watch=1", "pods watch state now 42m0s proven"},
		{"W-101 consistent, mark", "watch=1&allowWatchBookmarks=1", "pods watch state now bookmarks mark 42m0s proven"},
		{"W-101 any", "watch=1&resourceVersion=0", "pods watch state 42m0s"},
		{"W-101 any, mark", "watch=1&resourceVersion=0&allowWatchBookmarks=1", "pods watch state bookmarks mark 42m0s"},
		{"W-101 zeros are not zero", "watch=1&resourceVersion=00&allowWatchBookmarks=1", "pods watch state bookmarks 42m0s"},
		{"W-100 events", "watch=1&resourceVersion=90", "pods watch events >90 42m0s"},
		{"W-100 events, no mark", "watch=1&resourceVersion=90&allowWatchBookmarks=1",
			"pods watch events >90 bookmarks 42m0s"},
		{"W-27 leading zeros", "watch=1&resourceVersion=0090", "pods watch events >90 42m0s"},
		{"W-101 too short for a proof", "watch=1&timeoutSeconds=3", "upstream"},
		{"W-106 future", "watch=1&resourceVersion=900", "pods watch events >900 42m0s"},
		{"W-106 the largest", "watch=1&resourceVersion=18446744073709551615",
			"pods watch events >18446744073709551615 42m0s"},
		{"W-100 consistent", "watch=1&sendInitialEvents=true" + notOlder, "pods watch state now 42m0s proven"},
		{"W-100 any", "watch=1&resourceVersion=0&sendInitialEvents=true" + notOlder, "pods watch state 42m0s"},
		{"W-100 any", "watch=1&resourceVersion=00&allowWatchBookmarks=1&sendInitialEvents=true" + notOlder,
			"pods watch state bookmarks mark 42m0s"},
		{"W-100 at least", "watch=1&resourceVersion=90&sendInitialEvents=true" + notOlder, "pods watch state >=90 42m0s"},
		{"W-100 cache's present", "watch=1&resourceVersion=0&sendInitialEvents=false" + notOlder,
			"pods watch events now 42m0s"},
		{"W-100 store's present", "watch=1&sendInitialEvents=false" + notOlder, "pods watch events newest 42m0s"},
		{"W-100 as absent", "watch=1&resourceVersion=90&allowWatchBookmarks=1&sendInitialEvents=false" + notOlder,
			"pods watch events >90 bookmarks 42m0s"},
		{"W-32", "watch=1&sendInitialEvents=true",
			invalid + "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to " +
				"NotOlderThan"},
		{"W-32", "watch=1&resourceVersion=0" + notOlder,
			invalid + "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents " +
				"is provided"},
		{"W-32", "watch=1&sendInitialEvents=true&continue=x" + notOlder,
			invalid + "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"},
		{"W-32 ignored", "watch=1&resourceVersion=9&limit=1&continue=abc", "pods watch events >9 42m0s"},
		{"W-32 defaulted, then forbidden", "watch=1&resourceVersion=0&continue=abc",
			invalid + "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"},
		{"W-26", "watch=1&resourceVersion=0&limit=abc", `400 strconv.ParseInt: parsing "abc": invalid syntax`},
		{"W-27", "watch=1&resourceVersion=abc",
			`500 resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax`},
		{"W-25 empty is true", "watch=&resourceVersion=0", "pods watch state 42m0s"},
		{"W-25 no is true", "watch=no&resourceVersion=0&allowWatchBookmarks=yes", "pods watch state bookmarks mark 42m0s"},
		{"W-25 false", "watch=1&resourceVersion=0&allowWatchBookmarks=False", "pods watch state 42m0s"},
		{"W-29 seconds", "watch=1&resourceVersion=0&timeoutSeconds=7", "pods watch state 7s"},
		{"W-29 uncapped", "watch=1&resourceVersion=0&timeoutSeconds=86400", "pods watch state 24h0m0s"},
		{"W-29 zero is unset", "watch=1&resourceVersion=0&timeoutSeconds=0", "pods watch state 42m0s"},
		{"W-29 negative", "watch=1&resourceVersion=0&timeoutSeconds=-1", "pods watch state -1s"},
		{"W-29 overflow", "watch=1&resourceVersion=0&timeoutSeconds=9223372036854775807", "pods watch state -1s"},
		{"W-28 ignored", "watch=1&resourceVersion=0&timeout=abc", "pods watch state 42m0s"},
		{"W-9 ignored", "watch=1&resourceVersion=0&pretty=true", "pods watch state 42m0s"},
		{"W-117", "watch=1&resourceVersion=0&fieldSelector=metadata.name%3Da", "pods in /a watch state 42m0s"},
		{"W-117 of one", "watch=1&resourceVersion=0&fieldSelector=metadata.name%3Da,metadata.namespace%3Dc1",
			"pods in c1/a watch state 42m0s"},
	} {
		if got := p.Plan(Request{Method: "GET", Path: podsPath, RawQuery: c.query, Plain: true}).text(); got != c.want {
			t.Errorf("%s: %s:\ngot  %q\nwant %q", c.rule, c.query, got, c.want)
		}
	}
}

// The path that always watches has its options defaulted and validated as a LIST's, unless they too
// say that it is a watch (W-33).
func TestPlanDeprecatedWatch(t *testing.T) {
	p := testPlanner(t)
	const forbidden = `422 ListOptions.meta.k8s.io "" is invalid: `
	for _, c := range []struct{ rule, Target, want string }{
		{"any state", "pods", "pods watch state 42m0s"},
		{"whatever watch says", "pods?watch=false", "pods watch state 42m0s"},
		{"never consistent, no mark", "pods?allowWatchBookmarks=true", "pods watch state bookmarks 42m0s"},
		{"never consistent, no mark", "pods?allowWatchBookmarks=true&resourceVersion=0", "pods watch state bookmarks 42m0s"},
		{"unless it is a watch by its options too", "pods?watch=true&allowWatchBookmarks=true",
			"pods watch state now bookmarks mark 42m0s proven"},
		{"events", "pods?resourceVersion=90", "pods watch events >90 42m0s"},
		{"a match that a LIST may have means nothing", "pods?resourceVersion=90&resourceVersionMatch=Exact",
			"pods watch events >90 42m0s"},
		{"a token means nothing", "pods?resourceVersion=90&continue=x", "pods watch events >90 42m0s"},
		{"a timeout means nothing", "pods?timeout=x", "pods watch state 42m0s"},
		{"as a LIST", "pods?sendInitialEvents=true",
			forbidden + "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"},
		{"as a LIST", "pods?resourceVersion=0&resourceVersionMatch=Exact",
			forbidden + `resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`},
		{"malformed as a watch's", "pods?resourceVersion=abc",
			`500 resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax`},
		{"a name", "namespaces/c1/pods/a", "pods in c1/a watch state 42m0s"},
		{"a name, repeated", "namespaces/c1/pods/a?fieldSelector=metadata.name%3Da,status.phase%3DRunning",
			"pods in c1/a watch state 42m0s"},
		{"a name, and another", "namespaces/c1/pods/a?fieldSelector=metadata.name%3Db",
			"400 fieldSelector metadata.name doesn't match requested name"},
		{"a name, and none", "namespaces/c1/pods/a?fieldSelector=status.phase%3DRunning",
			"400 fieldSelector metadata.name doesn't match requested name"},
		{"a name, and labels", "namespaces/c1/pods/a?labelSelector=a%3Db", "pods in c1/a watch state 42m0s"},
	} {
		path, query, _ := strings.Cut("/api/v1/watch/"+c.Target, "?")
		if got := p.Plan(Request{Method: "GET", Path: path, RawQuery: query, Plain: true}).text(); got != c.want {
			t.Errorf("%s: %s:\ngot  %q\nwant %q", c.rule, c.Target, got, c.want)
		}
	}
}

// A consistent watch is not taken on while proofs fail, and is again once one has succeeded (D7).
func TestPlanDoubtful(t *testing.T) {
	p := testPlanner(t)
	source := p.Catalog.Find(sourcetest.Pods.GVR)
	r := Request{Method: "GET", Path: podsPath, RawQuery: "watch=1", Plain: true}
	for range 2 {
		if got := p.Plan(r).Action; got != FromCacheProven {
			t.Fatalf("before the second failure: %v", got)
		}
		if _, err := source.Fresh.Prove(t.Context()); err == nil {
			t.Fatal("proven without a proof")
		}
	}
	if got := p.Plan(r).text(); got != "upstream" {
		t.Errorf("after two failures: %q", got)
	}
	r.RawQuery += "&resourceVersion=0"
	if got := p.Plan(r).text(); got != "pods watch state 42m0s" {
		t.Errorf("any state, after two failures: %q", got)
	}
}

// A watch-list is gzipped where upstream's are, and only where its client accepts that.
func TestPlanWatchListsAreCompressedAsUpstreams(t *testing.T) {
	p := testPlanner(t)
	source := p.Catalog.Find(sourcetest.Pods.GVR)
	r := Request{Method: "GET", Path: podsPath, RawQuery: "watch=1&allowWatchBookmarks=true&resourceVersion=0",
		Plain: true}
	for _, c := range []struct {
		upstream       func() bool
		accepted, want bool
	}{
		{nil, true, true}, {nil, false, false},
		{func() bool { return true }, true, true}, {func() bool { return false }, true, false},
	} {
		source.CompressesWatchLists, r.AcceptEncoding = c.upstream, ""
		if c.accepted {
			r.AcceptEncoding = "gzip"
		}
		if got := p.Plan(r); got.Watch == nil || !got.Watch.EndMark || got.Encoding.Gzip != c.want {
			t.Errorf("%+v: compressed %t, %+v", c, got.Encoding.Gzip, got.Watch)
		}
	}
}

// A watch over a WebSocket is planned as any other, but it is not compressed (W-120).
func TestPlanWebSocketWatch(t *testing.T) {
	p := testPlanner(t)
	for _, query := range []string{
		"watch=1", "watch=1&resourceVersion=0", "watch=1&resourceVersion=7",
		"watch=1&allowWatchBookmarks=true&resourceVersion=0",
		"watch=1&resourceVersion=abc", "watch=1&timeoutSeconds=5&resourceVersion=0",
	} {
		r := Request{Method: "GET", Path: podsPath, RawQuery: query, AcceptEncoding: "gzip", Plain: true}
		want := p.Plan(r)
		r.WebSocket = true
		got := p.Plan(r)
		if got.text() != want.text() || got.Watch != nil && (!got.Encoding.WebSocket || got.Encoding.Gzip) {
			t.Errorf("%s: got %q, %+v; want %q", query, got.text(), got.Encoding, want.text())
		}
	}
}
