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

	mu       sync.Mutex
	tokens   map[string]authenticationv1.TokenReviewStatus // those that are valid
	access   func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus
	failCode int           // the HTTP status that every review is answered with; 0: none fails
	gate     chan struct{} // closed: open; reviews wait for it

	tokenReviews  []authenticationv1.TokenReviewSpec        // so far
	accessReviews []authorizationv1.SubjectAccessReviewSpec // so far
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
// answer names those. Without any the token is for the API server alone, whose answer then names
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
	r.failCode = code
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
	return slices.Clone(r.tokenReviews)
}

// Accesses are the access reviews so far, those that wait or failed included.
func (r *Reviews) Accesses() []authorizationv1.SubjectAccessReviewSpec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.accessReviews)
}

func (r *Reviews) serveToken(w http.ResponseWriter, req *http.Request) {
	var review authenticationv1.TokenReview
	r.serve(w, req, &review,
		func() { r.tokenReviews = append(r.tokenReviews, review.Spec) },
		func() { review.Status = r.tokenStatusLocked(review.Spec) })
}

// tokenStatusLocked reviews a token as kube-apiserver does, which answers with those of the
// audiences that both the review and the token name.
func (r *Reviews) tokenStatusLocked(spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	if spec.Token == "" {
		return authenticationv1.TokenReviewStatus{}
	}
	status, known := r.tokens[spec.Token]
	if !known {
		return authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}
	}
	own := status.Audiences
	status.Audiences = nil
	for _, audience := range own {
		if slices.Contains(spec.Audiences, audience) {
			status.Audiences = append(status.Audiences, audience)
		}
	}
	if len(spec.Audiences) > 0 && len(own) > 0 && len(status.Audiences) == 0 {
		return authenticationv1.TokenReviewStatus{Error: "[invalid bearer token, token audiences do not match]"}
	}
	return status
}

func (r *Reviews) serveAccess(w http.ResponseWriter, req *http.Request) {
	var review authorizationv1.SubjectAccessReview
	r.serve(w, req, &review,
		func() { r.accessReviews = append(r.accessReviews, review.Spec) },
		func() { review.Status = r.access(review.Spec) })
}

// serve reads a review, notes it, and answers it by the script. note and answer are called with mu
// held.
func (r *Reviews) serve(w http.ResponseWriter, req *http.Request, review any, note, answer func()) {
	if req.Method != http.MethodPost {
		writeError(w, req, methodNotAllowed())
		return
	}
	if err := json.NewDecoder(req.Body).Decode(review); err != nil {
		writeError(w, req, injected(http.StatusBadRequest))
		return
	}
	r.mu.Lock()
	note()
	gate := r.gate
	r.mu.Unlock()
	r.server.mu.Lock()
	r.server.changedLocked()
	r.server.mu.Unlock()
	if r.server.awaitChange(req.Context(), gate) != nil {
		return
	}
	r.mu.Lock()
	code := r.failCode
	if code == 0 {
		answer()
	}
	r.mu.Unlock()
	if code != 0 {
		writeError(w, req, injected(code))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}
