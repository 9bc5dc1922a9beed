package fuzzdiff

import (
	"strings"
	"testing"
)

// TestEachShrinkStepHasLess: shrinking ends, and nothing but what is needed is left.
func TestEachShrinkStepHasLess(t *testing.T) {
	needed := func(a ask) bool {
		return strings.Contains(a.target(), "metadata.name%3Da") && strings.HasPrefix(a.path, "/api/v1/") &&
			strings.Contains(a.path, "configmaps")
	}
	a := ask{
		method: "PUT", path: "/api/v1/namespaces/a/configmaps/b/status", body: "{}",
		header: []field{{"Accept", "application/json;q=0.5,*/*"}, {"Audit-ID", "x"}},
		params: []string{"limit=1", "fieldSelector=metadata.namespace%3Da%2Cmetadata.name%3Da%2Ctype%3Db",
			"resourceVersion=%30", "watch", "labelSelector=%zz", "limit=2"},
	}
	for range 1000 {
		next, ok := firstOf(simpler(a), needed)
		if !ok {
			if want := "GET /api/v1/configmaps?fieldSelector=metadata.name%3Da"; a.String() != want {
				t.Errorf("shrunk to %s, want %s", a, want)
			}
			return
		}
		a = next
	}
	t.Errorf("goes on forever: %s", a)
}

// TestNoRequestIsHeldOpen: a request for what a server would hold open is not made, however it is
// spelt (W-24 to W-29).
func TestNoRequestIsHeldOpen(t *testing.T) {
	for target, endless := range map[string]bool{
		"/api/v1/pods":                                           false,
		"/api/v1/pods?watch=1":                                   true,
		"/api/v1/pods?watch":                                     true,
		"/api/v1/pods?watch=&timeoutSeconds=2":                   false,
		"/api/v1/pods?watch=no&timeoutSeconds=0":                 true,
		"/api/v1/pods?watch=1&timeoutSeconds=3":                  true,
		"/api/v1/pods?watch=1&timeoutSeconds=abc":                false, // refused
		"/api/v1/pods?watch=1&timeoutSeconds=abc&x":              false,
		"/api/v1/pods?watch=1&timeoutSeconds=%zz":                true, // dropped
		"/api/v1/pods?watch=1&timeoutSeconds=9&timeoutSeconds=1": true, // the first counts
		"/api/v1/pods?watch=1;timeoutSeconds=1":                  false,
		"/api/v1/pods?watch=FALSE":                               false,
		"/api/v1/watch/pods":                                     true,
		"/api/v1/w%61tch/pods":                                   true,
		"/api/v1/watch/pods?watch=0&timeoutSeconds=1":            false,
	} {
		path, query, _ := strings.Cut(target, "?")
		a := ask{path: path}
		if query != "" {
			a.params = strings.Split(query, "&")
		}
		if a.endless() != endless {
			t.Errorf("%s: %t", target, a.endless())
		}
		if endless && !strings.HasPrefix(a.target(), path+"?timeoutSeconds=1&") && a.target() != path+"?timeoutSeconds=1" {
			t.Errorf("%s is requested as %s", target, a.target())
		}
	}
}

// The same seed, number and state give the same request.
func TestRequestIsAFunctionOfSeedNumberAndState(t *testing.T) {
	state := &State{Resources: []Resource{{Prefix: "/api/v1", Plural: "pods", Namespaced: true, Names: []string{"a"},
		Fields: map[string][]string{"x": {"1"}, "y": {"2"}, "z": {"3"}}}},
		Namespaces: []string{"a", "b"}, Versions: []uint64{20, 21, 22}, Ancient: []uint64{1, 5},
		Tokens:      []string{"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIvYVx1MDAwMCJ9"},
		Credentials: []string{"Bearer x"}}
	different := map[string]bool{}
	const many = 5000
	for i := range uint64(many) {
		a := generate(7, i, state)
		if a.String() != generate(7, i, state).String() {
			t.Fatalf("request %d is made differently each time: %s", i, a)
		}
		if a.endless() && !strings.Contains(a.target(), "?timeoutSeconds=1") {
			t.Fatalf("request %d may go on forever: %s", i, a)
		}
		different[a.String()] = true
	}
	if len(different) < many*3/4 {
		t.Errorf("only %d different requests of %d", len(different), many)
	}
}
