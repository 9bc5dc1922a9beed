package fakeapiserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// review posts a review and returns the code and what was made of it.
func review(t *testing.T, s *Server, path string, question, answer any) int {
	t.Helper()
	raw, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(deadline(t), http.MethodPost, s.URL+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

func TestReviews(t *testing.T) {
	s := server(t, Options{})
	r := s.Reviews()
	token := func(name string, audiences ...string) (int, authenticationv1.TokenReviewStatus) {
		var told authenticationv1.TokenReview
		code := review(t, s, "/apis/authentication.k8s.io/v1/tokenreviews",
			authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: name, Audiences: audiences}}, &told)
		return code, told.Status
	}
	access := func(user string) (int, bool) {
		var told authorizationv1.SubjectAccessReview
		code := review(t, s, "/apis/authorization.k8s.io/v1/subjectaccessreviews",
			authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user}}, &told)
		return code, told.Status.Allowed
	}
	if code, status := token("t"); code != 201 || status.Authenticated || status.Error == "" {
		t.Errorf("nobody's: %d %+v", code, status)
	}
	r.Know("t", authenticationv1.UserInfo{Username: "alice"}, "a", "b")
	if _, status := token("t"); !status.Authenticated || status.User.Username != "alice" || status.Audiences != nil {
		t.Errorf("alice's: %+v", status)
	}
	if _, status := token("t", "b", "c"); !status.Authenticated || len(status.Audiences) != 1 ||
		status.Audiences[0] != "b" {
		t.Errorf("for b: %+v", status)
	}
	if _, status := token("t", "c"); status.Authenticated {
		t.Errorf("for c: %+v", status)
	}
	if code, ok := access("alice"); code != 201 || ok {
		t.Errorf("at first: %d %v", code, ok)
	}
	r.Allow(func(spec authorizationv1.SubjectAccessReviewSpec) bool { return spec.User == "alice" })
	if _, ok := access("alice"); !ok {
		t.Error("alice may not")
	}
	if _, ok := access("bob"); ok {
		t.Error("bob may")
	}
	r.Fail(http.StatusServiceUnavailable)
	var status metav1.Status
	if code := review(t, s, "/apis/authorization.k8s.io/v1/subjectaccessreviews", authorizationv1.SubjectAccessReview{},
		&status); code != 503 || status.Code != 503 {
		t.Errorf("failing: %d %v", code, status)
	}
	r.Fail(0)
	resume := r.Stall()
	done := make(chan struct{})
	go func() {
		defer close(done)
		access("alice")
	}()
	if err := s.Await(deadline(t), func() bool { return len(r.Accesses()) == 5 }); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
		t.Error("it did not wait")
	default:
	}
	resume()
	<-done
	if n := len(r.Tokens()); n != 4 {
		t.Errorf("%d token reviews", n)
	}
}
