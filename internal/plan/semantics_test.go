package plan

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/source"
	"spillway/internal/source/sourcetest"
)

const watchListQuery = "watch=1&sendInitialEvents=true&allowWatchBookmarks=1&resourceVersionMatch=NotOlderThan"

// semanticsPlanner plans in front of an upstream that refuses watch-lists, or does not.
func semanticsPlanner(t *testing.T, ofUpstream, refuses bool) *Planner {
	t.Helper()
	p := testPlanner(t)
	p.Semantics = Semantics{OfUpstream: ofUpstream, RefusesWatchLists: func() bool { return refuses }}
	return p
}

// With the newest semantics a watch-list is never sent to an upstream that would refuse it, however
// short it is. While proofs fail it is to be sent again.
func TestPlanNewestSemantics(t *testing.T) {
	p := semanticsPlanner(t, false, true)
	for _, c := range []struct{ query, want string }{
		{watchListQuery, "pods watch state now bookmarks mark 42m0s proven"},
		{watchListQuery + "&timeoutSeconds=1", "pods watch state now bookmarks mark 1s proven"},
		{watchListQuery + "&timeoutSeconds=6", "pods watch state now bookmarks mark 6s proven"},
		{watchListQuery + "&resourceVersion=0&timeoutSeconds=1", "pods watch state bookmarks mark 1s"},
		{"watch=1&allowWatchBookmarks=1&timeoutSeconds=1", "pods watch state now bookmarks mark 1s proven"},
		{"watch=1&resourceVersion=0&allowWatchBookmarks=1", "pods watch state bookmarks mark 42m0s"},
	} {
		r := Request{Method: "GET", Path: podsPath, RawQuery: c.query, Plain: true}
		if got := p.Plan(r).text(); got != c.want {
			t.Errorf("%s: %q, want %q", c.query, got, c.want)
		}
	}
	for range 2 {
		_, _ = p.Catalog.Find(sourcetest.Pods.GVR).Fresh.Prove(t.Context()) // fails
	}
	for _, query := range []string{watchListQuery, watchListQuery + "&timeoutSeconds=1", "watch=1"} {
		c, _ := p.Consider(Request{Method: "GET", Path: podsPath, RawQuery: query, Plain: true})
		if decided := p.Decide(c); !decided.Doubtful || !p.Awaits(c, decided) {
			t.Errorf("%s while proofs fail: %q", query, decided.text())
		}
	}
}

// With upstream's semantics it is refused, by upstream, and watches have no end bookmark.
func TestPlanUpstreamSemantics(t *testing.T) {
	for _, c := range []struct{ query, refusing, serving string }{
		{watchListQuery, "upstream", "pods watch state now bookmarks mark 42m0s proven"},
		{watchListQuery + "&resourceVersion=0", "upstream", "pods watch state bookmarks mark 42m0s"},
		{"watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", "upstream",
			"pods watch events newest 42m0s"},
		{"watch=1&allowWatchBookmarks=1", "pods watch state bookmarks 42m0s",
			"pods watch state now bookmarks mark 42m0s proven"},
		{"watch=1&resourceVersion=0&allowWatchBookmarks=1", "pods watch state bookmarks 42m0s",
			"pods watch state bookmarks mark 42m0s"},
		{"watch=1&resourceVersion=90", "pods watch events >90 42m0s", "pods watch events >90 42m0s"},
		{"watch=1&resourceVersion=abc", "upstream", "upstream"}, // its own words
		{"resourceVersion=abc", "upstream", "upstream"},
	} {
		r := Request{Method: "GET", Path: podsPath, RawQuery: c.query, Plain: true}
		if got := semanticsPlanner(t, true, true).Plan(r).text(); got != c.refusing {
			t.Errorf("%s, where watch-lists are refused: %q, want %q", c.query, got, c.refusing)
		}
		if got := semanticsPlanner(t, true, false).Plan(r).text(); got != c.serving {
			t.Errorf("%s, where watch-lists are served: %q, want %q", c.query, got, c.serving)
		}
	}
}

// soon is a catalog whose sources cannot be used at this moment.
type soon struct{ sourcetest.Resources }

func (soon) Find(schema.GroupVersionResource) *source.Source { return nil }
func (soon) Soon(schema.GroupVersionResource) bool           { return true }

// While memory cannot answer, a watch-list that upstream would refuse is to be sent again; nothing
// else is held back.
func TestWatchListsAwaitMemory(t *testing.T) {
	f := func(ofUpstream, refuses, waits bool, query string, want bool) {
		t.Helper()
		p := semanticsPlanner(t, ofUpstream, refuses)
		if waits {
			p.Catalog = soon{p.Catalog.(sourcetest.Resources)}
		}
		c, _ := p.Consider(Request{Method: "GET", Path: podsPath, RawQuery: query, Plain: true})
		decided := p.Decide(c)
		decided.Action = Upstream
		if got := p.Awaits(c, decided); got != want {
			t.Errorf("of upstream %t, which refuses %t, soon %t: %s awaits %t", ofUpstream, refuses, waits, query, got)
		}
	}
	f(false, true, true, watchListQuery, true)
	f(false, true, true, "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", true)
	f(false, true, true, "watch=1&allowWatchBookmarks=1", false)
	f(false, true, true, "", false)
	f(false, true, false, watchListQuery, false)
	f(false, false, true, watchListQuery, false)
	f(true, true, true, watchListQuery, false)
}

// A set that ends with two commas is read by one rule up to Kubernetes 1.34 and by another since.
func TestPlanLabelSetsOfTwoRules(t *testing.T) {
	p := testPlanner(t)
	f := func(selector string, upstream bool) {
		t.Helper()
		r := Request{Method: "GET", Path: podsPath, RawQuery: "resourceVersion=0&labelSelector=" + selector, Plain: true}
		if got := p.Plan(r).text(); (got == "upstream") != upstream {
			t.Errorf("%s: %q", selector, got)
		}
	}
	f("x+in+(a,,)", true)
	f("x+in+(a+,+,+)", true)
	f("x+in+(,,),y", true)
	f("x+in+(a,)", false)
	f("x+in+(,a)", false)
	f("x+in+(a,,b)", false)
	f("x+in+(a),y", false)
}
