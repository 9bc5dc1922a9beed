package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"go.uber.org/zap"
)

const (
	tokenReviewsPath  = "/apis/authentication.k8s.io/v1/tokenreviews"
	accessReviewsPath = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	// maxReview bounds what is read of an answer, in bytes.
	maxReview = 1 << 20
)

// Reviewer asks upstream which identity a token proves and what an identity may do, under the
// proxy's own credentials, which need the rights of system:auth-delegator. It is one POST each,
// without client-go's request: that repeats what was refused with a Retry-After, for as long as it
// takes, and here a late answer is none.
type Reviewer struct {
	reviewClient
	base    *url.URL
	http    *http.Client
	log     *zap.Logger
	failing atomic.Pointer[ReviewFailure] // nil: the last review was answered
}

// ReviewFailure is why upstream answers no reviews, and since when for this kind of reason.
type ReviewFailure struct {
	Since time.Time
	Err   *NotReviewedError
}

// reviewClient puts the two questions to upstream. Errors are *NotReviewedError.
type reviewClient interface {
	// token asks whose token it is. Without audiences it must be one for upstream itself.
	token(ctx context.Context, token Secret, audiences []string) (authenticationv1.TokenReviewStatus, error)
	// access asks whether an identity may do something.
	access(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (AccessStatus, error)
}

// delegatedReviewer asks about others (TokenReview, SubjectAccessReview).
type delegatedReviewer struct{ *Reviewer }

// NewReviewer returns a Reviewer that sends with own, which adds the proxy's credentials, to the
// apiserver at base. It follows no redirects: they would carry the credentials elsewhere.
func NewReviewer(base *url.URL, own http.RoundTripper, log *zap.Logger) *Reviewer {
	r := &Reviewer{base: base, log: log, http: &http.Client{Transport: own, CheckRedirect: noRedirects}}
	r.reviewClient = delegatedReviewer{r}
	return r
}

func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// NotReviewedError is why upstream did not answer a review. It holds nothing of the question.
type NotReviewedError struct {
	Review string // TokenReview or SubjectAccessReview
	Code   int    // of upstream's answer; 0: there was none
	Reason string
}

// Error implements error.
func (e *NotReviewedError) Error() string {
	if e.Code == 0 {
		return fmt.Sprintf("%s: %s", e.Review, e.Reason)
	}
	return fmt.Sprintf("%s: upstream answered %d: %s", e.Review, e.Code, e.Reason)
}

// general reports that the failure has nothing to do with the question: upstream is away, at its
// limits, or takes no questions of us.
func (e *NotReviewedError) general() bool {
	switch e.Code {
	case 0, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
		return true
	}
	return e.Code >= http.StatusInternalServerError
}

// IsRefused reports that upstream does not permit the proxy to send the review.
func (e *NotReviewedError) IsRefused() bool {
	return e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden
}

// token implements reviewClient.
func (r delegatedReviewer) token(ctx context.Context, token Secret, audiences []string) (
	authenticationv1.TokenReviewStatus, error) {
	review := authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{Kind: "TokenReview", APIVersion: "authentication.k8s.io/v1"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token.Reveal(), Audiences: audiences},
	}
	var answer authenticationv1.TokenReview
	if err := r.post(ctx, review.Kind, tokenReviewsPath, &review, &answer); err != nil {
		err.Reason = strings.ReplaceAll(err.Reason, token.Reveal(), concealed) // whatever upstream's words are
		return authenticationv1.TokenReviewStatus{}, err
	}
	return answer.Status, nil
}

// access implements reviewClient.
func (r delegatedReviewer) access(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (AccessStatus,
	error) {
	review := authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{Kind: "SubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
		Spec:     spec,
	}
	var answer authorizationv1.SubjectAccessReview
	if err := r.post(ctx, review.Kind, accessReviewsPath, &review, &answer); err != nil {
		return AccessStatus{}, err
	}
	return answer.Status, nil
}

// Fetch reads a document of upstream's. Errors are *NotReviewedError.
func (r *Reviewer) Fetch(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base.JoinPath(path).String(), nil)
	if err != nil {
		return nil, &NotReviewedError{Review: path, Reason: err.Error()}
	}
	req.Header.Set("Accept", "application/json, application/jwk-set+json")
	code, raw, failure := send(r.http, req)
	switch {
	case failure != nil:
		failure.Review = path
		return nil, failure
	case code != http.StatusOK:
		return nil, &NotReviewedError{Review: path, Code: code, Reason: refusalOf(raw)}
	}
	return raw, nil
}

// post asks under the proxy's own credentials.
func (r *Reviewer) post(ctx context.Context, kind, path string, review, answer any) *NotReviewedError {
	failure := r.exchange(ctx, r.http, path, review, answer)
	if failure != nil {
		failure.Review = kind
	}
	r.note(ctx, failure)
	return failure
}

// Failure is why upstream answers no reviews at present; nil: it answered the last one.
func (r *Reviewer) Failure() *ReviewFailure { return r.failing.Load() }

// note tells the log when upstream stops answering, when its reason becomes another one, and when
// it answers again. nil: it did.
func (r *Reviewer) note(ctx context.Context, failure *NotReviewedError) {
	before := r.failing.Load()
	if failure == nil {
		if before != nil && r.failing.CompareAndSwap(before, nil) {
			r.log.Info("upstream answers reviews again")
		}
		return
	}
	if errors.Is(ctx.Err(), context.Canceled) || !failure.general() ||
		before != nil && before.Err.IsRefused() == failure.IsRefused() ||
		!r.failing.CompareAndSwap(before, &ReviewFailure{Since: time.Now(), Err: failure}) {
		return
	}
	text := "upstream does not answer reviews of the identity of clients and of their permissions"
	if failure.IsRefused() {
		text = "upstream denies Spillway reviews of the identity of clients and of their permissions: give it the " +
			"rights of the cluster role system:auth-delegator"
	}
	r.log.Warn(text+"; clients get nothing from memory, and watches pause when they are due to be checked",
		zap.Error(failure))
}

// exchange sends a review and reads what upstream made of it.
func (r *Reviewer) exchange(ctx context.Context, by *http.Client, path string, review, answer any) *NotReviewedError {
	body, err := json.Marshal(review)
	if err != nil {
		return &NotReviewedError{Reason: "the review cannot be encoded"}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return &NotReviewedError{Reason: err.Error()}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	code, raw, failure := send(by, req)
	switch {
	case failure != nil:
		return failure
	case code >= http.StatusInternalServerError:
		return &NotReviewedError{Code: code, Reason: "it failed"} // its words may repeat the question
	case code != http.StatusCreated && code != http.StatusOK:
		return &NotReviewedError{Code: code, Reason: refusalOf(raw)}
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return &NotReviewedError{Code: code, Reason: "its answer is not a review"}
	}
	return nil
}

// send sends a request and reads its answer.
func send(by *http.Client, req *http.Request) (int, []byte, *NotReviewedError) {
	resp, err := by.Do(req)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return 0, nil, &NotReviewedError{Reason: err.Error()}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxReview))
	if err != nil {
		return 0, nil, &NotReviewedError{Reason: err.Error()}
	}
	return resp.StatusCode, raw, nil
}

// refusalOf is the message of a Status, clipped; of anything else there is nothing that a log line
// should repeat.
func refusalOf(raw []byte) string {
	const most = 256
	var status metav1.Status
	if json.Unmarshal(raw, &status) != nil || status.Message == "" {
		return "without a Status"
	}
	message := strings.Join(strings.Fields(status.Message), " ")
	if len(message) > most {
		message = message[:most] + "…"
	}
	return message
}
