package fakeapiserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// Reviews answer TokenReviews and SubjectAccessReviews by a script. At first no token is valid and
// no user is allowed anything.
type Reviews struct {
	server *Server

	mu     sync.Mutex
	tokens map[string]authenticationv1.TokenReviewStatus
	access func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus
	code   int           // other than 0: what every review is answered with
	gate   chan struct{} // closed: open; reviews wait for it
	asked  struct {
		tokens   []authenticationv1.TokenReviewSpec
		accesses []authorizationv1.SubjectAccessReviewSpec
	}
}

// Reviews serves both kinds of reviews from now on.
func (s *Server) Reviews() *Reviews {
	r := &Reviews{server: s, tokens: map[string]authenticationv1.TokenReviewStatus{}, gate: make(chan struct{})}
	r.access = func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		return authorizationv1.SubjectAccessReviewStatus{}
	}
	close(r.gate)
	s.Handle("/apis/authentication.k8s.io/v1/tokenreviews", http.HandlerFunc(r.serveToken))
	s.Handle("/apis/authorization.k8s.io/v1/subjectaccessreviews", http.HandlerFunc(r.serveAccess))
	return r
}

// Know makes a token a user's, for the given audiences: a review must name one of them, and its
// answer names those. Without any the token is for the apiserver alone, whose answer then names
// none.
func (r *Reviews) Know(token string, user authenticationv1.UserInfo, audiences ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens[token] = authenticationv1.TokenReviewStatus{Authenticated: true, User: user, Audiences: audiences}
}

// Forget makes a token invalid.
func (r *Reviews) Forget(token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tokens, token)
}

// Access sets the answers to access reviews from now on.
func (r *Reviews) Access(
	decide func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.access = decide
}

// Allow allows every user what the function allows, and nothing else.
func (r *Reviews) Allow(allowed func(authorizationv1.SubjectAccessReviewSpec) bool) {
	r.Access(func(s authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: allowed(s)}
	})
}

// Fail answers every review with an HTTP status; 0 ends that.
func (r *Reviews) Fail(code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.code = code
}

// Stall lets reviews wait until the returned function is called, or their clients have gone.
func (r *Reviews) Stall() (resume func()) {
	gate := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate = gate
	return sync.OnceFunc(func() { close(gate) })
}

// Tokens are the token reviews so far, those that wait or failed included.
func (r *Reviews) Tokens() []authenticationv1.TokenReviewSpec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked.tokens)
}

// Accesses are the access reviews so far, those that wait or failed included.
func (r *Reviews) Accesses() []authorizationv1.SubjectAccessReviewSpec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked.accesses)
}

func (r *Reviews) serveToken(w http.ResponseWriter, req *http.Request) {
	var review authenticationv1.TokenReview
	r.serve(w, req, &review, func() { r.asked.tokens = append(r.asked.tokens, review.Spec) }, func() {
		if review.Spec.Token == "" {
			return
		}
		known, ok := r.tokens[review.Spec.Token]
		named := func(a string) bool { return slices.Contains(review.Spec.Audiences, a) }
		switch {
		case !ok:
			review.Status.Error = "invalid bearer token"
		case len(review.Spec.Audiences) > 0 && len(known.Audiences) > 0 && !slices.ContainsFunc(known.Audiences, named):
			review.Status.Error = "[invalid bearer token, token audiences do not match]"
		default:
			review.Status = known
			if review.Status.Audiences = nil; len(review.Spec.Audiences) > 0 {
				review.Status.Audiences = slices.DeleteFunc(slices.Clone(known.Audiences), func(a string) bool { return !named(a) })
			}
		}
	})
}

func (r *Reviews) serveAccess(w http.ResponseWriter, req *http.Request) {
	var review authorizationv1.SubjectAccessReview
	r.serve(w, req, &review, func() { r.asked.accesses = append(r.asked.accesses, review.Spec) }, func() {
		review.Status = r.access(review.Spec)
	})
}

// serve reads a review, notes it, and answers it by the script. note and answer are called with mu
// held.
func (r *Reviews) serve(w http.ResponseWriter, req *http.Request, review any, note, answer func()) {
	if req.Method != http.MethodPost {
		writeError(w, req, methodNotAllowed())
		return
	}
	if err := json.NewDecoder(req.Body).Decode(review); err != nil {
		writeError(w, req, wished(http.StatusBadRequest))
		return
	}
	r.mu.Lock()
	note()
	gate := r.gate
	r.mu.Unlock()
	r.server.mu.Lock()
	r.server.changedLocked()
	r.server.mu.Unlock()
	select {
	case <-gate:
	case <-req.Context().Done():
		return
	case <-r.server.done:
		return
	}
	r.mu.Lock()
	code := r.code
	if code == 0 {
		answer()
	}
	r.mu.Unlock()
	if code != 0 {
		writeError(w, req, wished(code))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}
