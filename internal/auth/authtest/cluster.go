// Package authtest has what tests of package auth and of the packages inside it share: a cluster
// that answers reviews, certificates, and a clock that can be set.
//
// It does not import package auth, so that tests inside that package can use it.
package authtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// The paths of reviews.
const (
	TokenReviews  = "/apis/authentication.k8s.io/v1/tokenreviews"
	AccessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

// tokenTTL is how long kube-apiserver remembers that a token is good.
const tokenTTL = 10 * time.Second

// Cluster answers reviews inside a bubble with time of its own: as an http.RoundTripper, because
// sockets would leave the bubble. Like kube-apiserver it remembers for ten seconds that a token is
// good.
type Cluster struct {
	mu         sync.Mutex
	Users      map[string]string    // token -> user
	Remembered map[string]time.Time // token -> until when it is good, whatever Users has
	Groups     map[string][]string
	Denied     map[string]bool      // "user resource", or "user /path"
	Latency    func() time.Duration // called with the lock held
	Failing    bool
	Refusing   int // the code of every answer; 0: reviews are answered
	tokens     int
	accesses   int
}

// NewCluster returns a cluster without users that takes 10 ms for an answer.
func NewCluster() *Cluster {
	return &Cluster{
		Users: map[string]string{}, Remembered: map[string]time.Time{}, Groups: map[string][]string{},
		Denied: map[string]bool{}, Latency: func() time.Duration { return 10 * time.Millisecond },
	}
}

// Change changes the exported fields, which the lock guards.
func (c *Cluster) Change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// CountReviews is how many reviews there were.
func (c *Cluster) CountReviews() (tokens, accesses int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tokens, c.accesses
}

var errDown = errors.New("connection refused")

// RoundTrip implements http.RoundTripper. An answer is true at half of its latency.
func (c *Cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	half, refusing := c.Latency()/2, c.Refusing
	if c.Failing {
		c.mu.Unlock()
		return nil, errDown
	}
	c.mu.Unlock()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if err := Wait(r.Context(), half); err != nil {
		return nil, err
	}
	answer := c.answer(r.URL.Path, raw)
	if err := Wait(r.Context(), half); err != nil {
		return nil, err
	}
	if refusing != 0 {
		return &http.Response{StatusCode: refusing, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(answer)), Request: r}, nil
}

// Wait waits, unless ctx ends.
func Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answer is the answer to a review.
func (c *Cluster) answer(path string, raw []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var answer any
	if path == TokenReviews {
		answer = c.reviewTokenLocked(raw)
	} else {
		answer = c.reviewAccessLocked(raw)
	}
	encoded, _ := json.Marshal(answer)
	return encoded
}

func (c *Cluster) reviewTokenLocked(raw []byte) (review authenticationv1.TokenReview) {
	c.tokens++
	_ = json.Unmarshal(raw, &review)
	token := review.Spec.Token
	name, known := c.Users[token]
	switch {
	case known:
		c.Remembered[token] = time.Now().Add(tokenTTL)
	case time.Now().Before(c.Remembered[token]):
		name, known = strings.TrimPrefix(token, "token-of-"), true
	}
	if known {
		review.Status.Authenticated = true
		review.Status.User = authenticationv1.UserInfo{Username: name, Groups: c.Groups[name]}
	}
	return review
}

func (c *Cluster) reviewAccessLocked(raw []byte) (review authorizationv1.SubjectAccessReview) {
	c.accesses++
	_ = json.Unmarshal(raw, &review)
	review.Status.Allowed = !c.Denied[review.Spec.User+" "+requested(review.Spec)]
	return review
}

// requested is the resource or the path that a review is about.
func requested(spec authorizationv1.SubjectAccessReviewSpec) string {
	if spec.NonResourceAttributes != nil {
		return spec.NonResourceAttributes.Path
	}
	return spec.ResourceAttributes.Resource
}

// JWT is a token that makes these claims.
func JWT(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}
