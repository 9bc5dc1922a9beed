package auth

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

var bob = &Identity{name: "bob", uid: "u-2", groups: []string{"dev", "system:authenticated"},
	extra: map[string][]string{"scopes": {"a"}}}

// wants is what a request asks for.
func wants(t testing.TB, target string) Attributes {
	t.Helper()
	path, query, _ := strings.Cut(target, "?")
	a, ok := AttributesOf("GET", path, query)
	if !ok {
		t.Fatalf("no authorizer decides about %s", target)
	}
	return a
}

// An access review carries all attributes of the request (W-22).
func TestAccessReview(t *testing.T) {
	w := newWorld(t)
	a := w.authorizer()
	for _, c := range []struct{ target, want string }{
		{"/api/v1/namespaces/c1/pods/a/log",
			`"resourceAttributes":{"namespace":"c1","verb":"get","version":"v1","resource":"pods","subresource":"log",` +
				`"name":"a"}`},
		{"/apis/apps/v1/deployments?watch=1",
			`"resourceAttributes":{"verb":"watch","group":"apps","version":"v1","resource":"deployments"}`},
		{"/api/v1/pods?fieldSelector=metadata.name%3Da,spec.nodeName%21%3Dn,status.phase%3D%3DRunning" +
			"&labelSelector=a,!b,c+in+(y,x),d!%3De,f%3Dg,h>5",
			`"resourceAttributes":{"verb":"list","version":"v1","resource":"pods","name":"a",` +
				`"fieldSelector":{"requirements":[{"key":"metadata.name","operator":"In","values":["a"]},` +
				`{"key":"spec.nodeName","operator":"NotIn","values":["n"]},` +
				`{"key":"status.phase","operator":"In","values":["Running"]}]},` +
				`"labelSelector":{"requirements":[{"key":"a","operator":"Exists"},{"key":"b","operator":"DoesNotExist"},` +
				`{"key":"c","operator":"In","values":["x","y"]},` +
				`{"key":"d","operator":"NotIn","values":["e"]},{"key":"f","operator":"In","values":["g"]}]}}`},
		{"/api/v1/pods?fieldSelector=nonsense&labelSelector=x+in+(",
			`"resourceAttributes":{"verb":"list","version":"v1","resource":"pods"}`},
		{"/version", `"nonResourceAttributes":{"path":"/version","verb":"get"}`},
	} {
		if d := a.Authorize(w.ctx(), bob, wants(t, c.target)); d.Verdict != Denied {
			t.Errorf("%s: got %+v", c.target, d)
		}
		asked := w.reviews.Accesses()
		got, err := json.Marshal(asked[len(asked)-1])
		if err != nil {
			t.Fatal(err)
		}
		want := `{` + c.want + `,"user":"bob","groups":["dev","system:authenticated"],"extra":{"scopes":["a"]},"uid":"u-2"}`
		if !sameJSON(t, string(got), want) {
			t.Errorf("%s:\ngot  %s\nwant %s", c.target, got, want)
		}
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal([]byte(a), &x), json.Unmarshal([]byte(b), &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

// What the API server said counts for ten seconds either way, for the same question of the same
// identity only.
func TestDecisionsAreRemembered(t *testing.T) {
	w := newWorld(t)
	a := w.authorizer()
	pods, watch := wants(t, "/api/v1/namespaces/c1/pods"), wants(t, "/api/v1/namespaces/c1/pods?watch=1")
	check := func(who *Identity, what Attributes, want Verdict, wantReviews int) {
		t.Helper()
		if d := a.Authorize(w.ctx(), who, what); d.Verdict != want {
			t.Errorf("%s %s: got %+v, want %s", who.name, what.Verb, d, want)
		}
		if n := len(w.reviews.Accesses()); n != wantReviews {
			t.Errorf("%s %s: %d reviews, want %d", who.name, what.Verb, n, wantReviews)
		}
	}
	check(bob, pods, Denied, 1)
	w.reviews.Allow(allowed)
	w.clock.Step(AnswerTTL - 1)
	check(bob, pods, Denied, 1)
	w.clock.Step(1)
	check(bob, pods, Allowed, 2)
	check(bob, watch, Allowed, 3)
	another := *bob
	another.extra = map[string][]string{"scopes": {"b"}}
	check(&another, pods, Allowed, 4)
	w.reviews.Allow(func(authorizationv1.SubjectAccessReviewSpec) bool { return false })
	w.clock.Step(AnswerTTL - 1)
	check(bob, pods, Allowed, 4)
	w.clock.Step(1)
	check(bob, pods, Denied, 5)
}

// Nothing but a plain allowance allows.
func TestVerdicts(t *testing.T) {
	w := newWorld(t)
	what := wants(t, "/api/v1/pods")
	for i, c := range []struct {
		status authorizationv1.SubjectAccessReviewStatus
		want   Verdict
	}{
		{authorizationv1.SubjectAccessReviewStatus{}, Denied},
		{authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "no"}, Denied},
		{authorizationv1.SubjectAccessReviewStatus{Allowed: true}, Allowed},
		{authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "a role is missing"}, Allowed},
		{authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}, Unreviewed},
		{authorizationv1.SubjectAccessReviewStatus{EvaluationError: "webhook down"}, Unreviewed},
	} {
		w.reviews.Access(func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
			return c.status
		})
		d := w.authorizer().Authorize(w.ctx(), bob, what)
		if d.Verdict != c.want || (d.Err != nil) != (c.want == Unreviewed) || d.Reason != c.status.Reason {
			t.Errorf("%d: got %+v, want %s", i, d, c.want)
		}
	}
	a := w.authorizer()
	for _, code := range []int{403, 429, 500} {
		w.reviews.Fail(code)
		w.clock.Step(FailureTTL)
		if d := a.Authorize(w.ctx(), bob, what); d.Verdict != Unreviewed || d.Err == nil {
			t.Errorf("%d: got %+v", code, d)
		}
	}
}

// A thousand concurrent requests with equal attributes cause one review.
func TestHerdOfOneQuestion(t *testing.T) {
	w := newWorld(t)
	a := w.authorizer()
	w.reviews.Allow(allowed)
	resume := w.reviews.Stall()
	what := wants(t, "/api/v1/pods")
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() {
			if d := a.Authorize(w.ctx(), bob, what); d.Verdict != Allowed {
				t.Errorf("got %+v", d)
			}
		})
	}
	w.await(func() bool { return len(w.reviews.Accesses()) > 0 })
	resume()
	all.Wait()
	if n := len(w.reviews.Accesses()); n != 1 {
		t.Errorf("%d reviews", n)
	}
}

// TestForbidden is W-174.
func TestForbidden(t *testing.T) {
	const head = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":`
	f := func(user, target, reason, want string) {
		t.Helper()
		got, err := json.Marshal(Forbidden(&Identity{name: user}, wants(t, target), reason))
		if err != nil {
			t.Fatal(err)
		}
		if unescaped := strings.NewReplacer(`\u0026`, "&", `\u003c`, "<", `\u003e`, ">").Replace(
			string(got)); unescaped != head+want {
			t.Errorf("%s:\ngot  %s\nwant %s", target, unescaped, head+want)
		}
	}
	f("alice", "/api/v1/namespaces/c1/configmaps", "",
		`"configmaps is forbidden: User \"alice\" cannot list resource \"configmaps\" in API group \"\" `+
			`in the namespace \"c1\"",`+
			`"reason":"Forbidden","details":{"kind":"configmaps"},"code":403}`)
	f("alice", "/api/v1/namespaces/c1/configmaps?watch=1&fieldSelector=metadata.name=a", "",
		`"configmaps \"a\" is forbidden: User \"alice\" cannot watch resource \"configmaps\" in API group \"\" `+
			`in the namespace \"c1\"",`+
			`"reason":"Forbidden","details":{"name":"a","kind":"configmaps"},"code":403}`)
	f("alice", "/api/v1/nodes/n1", "",
		`"nodes \"n1\" is forbidden: User \"alice\" cannot get resource \"nodes\" in API group \"\" at the cluster scope",`+
			`"reason":"Forbidden","details":{"name":"n1","kind":"nodes"},"code":403}`)
	f("alice", "/apis/apps/v1/namespaces/c1/deployments/x/status", "",
		`"deployments.apps \"x\" is forbidden: User \"alice\" cannot get resource \"deployments/status\" `+
			`in API group \"apps\" in the namespace \"c1\"",`+
			`"reason":"Forbidden","details":{"name":"x","group":"apps","kind":"deployments"},"code":403}`)
	f("alice", "/foo", "",
		`"forbidden: User \"alice\" cannot get path \"/foo\"","reason":"Forbidden","details":{},"code":403}`)
	f("<b>&", "/foo", "RBAC: <x>",
		`"forbidden: User \"&lt;b&gt;&amp;\" cannot get path \"/foo\": RBAC: <x>","reason":"Forbidden","details":{},`+
			`"code":403}`)
}
