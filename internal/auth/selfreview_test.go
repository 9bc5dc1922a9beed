package auth

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// selfReviewed is an API server that serves self reviews: it names the user of a token, and allows
// the pod, which sends no token of its own, to list.
func selfReviewed(t *testing.T) (*world, *Reviewer, *atomic.Int32) {
	w := newWorld(t)
	code := new(atomic.Int32)
	answer := func(rw http.ResponseWriter, v any) {
		if c := code.Load(); c != 0 {
			rw.WriteHeader(int(c))
			return
		}
		rw.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(rw).Encode(v)
	}
	w.server.Handle(selfReviewsPath, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		user, ok := map[string]string{"Bearer own": "pod", "Bearer other": "stranger"}[r.Header.Get("Authorization")]
		if !ok {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		answer(rw, authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
			UserInfo: authenticationv1.UserInfo{Username: user},
		}})
	}))
	w.server.Handle(selfAccessReviewsPath, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SelfSubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Status.Allowed = review.Spec.ResourceAttributes.Verb == "list" && r.Header.Get("Authorization") == ""
		answer(rw, review)
	}))
	return w, NewSelfReviewer(w.asks, w.own, "pod"), code
}

// Whose a token is, the API server says to the token itself.
func TestSelfReviewOfTokens(t *testing.T) {
	w, asks, code := selfReviewed(t)
	a := NewAuthenticator(AuthenticatorOptions{Reviewer: asks, Clock: w.clock})
	for token, want := range map[string]string{"own": "pod", "other": "stranger", "forged": ""} {
		got := a.Authenticate(w.ctx(), withToken(token))
		if want == "" && got.Outcome != Refused || want != "" && (got.Outcome != Authenticated || got.Identity.name != want) {
			t.Errorf("%s: %+v", token, got)
		}
	}
	code.Store(http.StatusServiceUnavailable)
	w.clock.Step(AnswerTTL)
	if got := a.Authenticate(w.ctx(), withToken("own")); got.Outcome != Unknown {
		t.Errorf("while upstream says nothing: %+v", got)
	}
}

// The self reviewer asks the API server what the pod may do, and denies everything to other users.
func TestSelfReviewOfAccess(t *testing.T) {
	w, asks, code := selfReviewed(t)
	a := NewAuthorizer(AuthorizerOptions{Reviewer: asks, Clock: w.clock})
	list, get := Attributes{Verb: "list", Resource: "pods"}, Attributes{Verb: "get", Resource: "pods", Name: "x"}
	for _, c := range []struct {
		who  string
		what Attributes
		want Verdict
	}{{"pod", list, Allowed}, {"pod", get, Denied}, {"stranger", list, Denied}, {"", list, Denied}} {
		if got := a.Authorize(w.ctx(), &Identity{name: c.who}, c.what); got.Verdict != c.want {
			t.Errorf("%s, %s: %+v, want %s", c.who, c.what.Verb, got, c.want)
		}
	}
	code.Store(http.StatusInternalServerError)
	w.clock.Step(AnswerTTL)
	if got := a.Authorize(w.ctx(), &Identity{name: "pod"}, list); got.Verdict != Unreviewed {
		t.Errorf("while upstream says nothing: %+v", got)
	}
}
