package auth

import (
	"context"
	"net/http"
	"net/url"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	tokenReviewsPath  = "/apis/authentication.k8s.io/v1/tokenreviews"
	accessReviewsPath = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

// Reviewer asks the API server which identity a token proves and what an identity may do.
type Reviewer struct {
	*reviewSender
	reviewClient
}

// reviewClient puts the two questions to the API server. Errors are *NotReviewedError.
type reviewClient interface {
	// token asks whose token it is. Without audiences it must be one for the API server itself.
	token(ctx context.Context, token Secret, audiences []string) (authenticationv1.TokenReviewStatus, error)
	// access asks whether an identity may do something.
	access(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (AccessStatus, error)
}

// NewReviewer returns a Reviewer that sends reviews with own, which adds the proxy's credentials,
// to the API server at base. These need the rights of system:auth-delegator.
func NewReviewer(base *url.URL, own http.RoundTripper, log *zap.Logger) *Reviewer {
	sender := &reviewSender{base: base, log: log, own: &http.Client{Transport: own, CheckRedirect: noRedirects}}
	return &Reviewer{sender, delegatedReviewClient{sender}}
}

// delegatedReviewClient asks about others (TokenReview, SubjectAccessReview).
type delegatedReviewClient struct{ *reviewSender }

// token implements reviewClient.
func (c delegatedReviewClient) token(ctx context.Context, token Secret, audiences []string) (
	authenticationv1.TokenReviewStatus, error) {
	review := authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{Kind: "TokenReview", APIVersion: "authentication.k8s.io/v1"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token.Reveal(), Audiences: audiences},
	}
	var answer authenticationv1.TokenReview
	failure := c.exchange(ctx, c.own, tokenReviewsPath, &review, &answer)
	failure.conceal(token)
	c.note(ctx, failure)
	if failure != nil {
		return authenticationv1.TokenReviewStatus{}, failure
	}
	return answer.Status, nil
}

// access implements reviewClient.
func (c delegatedReviewClient) access(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (AccessStatus,
	error) {
	review := authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{Kind: "SubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
		Spec:     spec,
	}
	var answer authorizationv1.SubjectAccessReview
	failure := c.exchange(ctx, c.own, accessReviewsPath, &review, &answer)
	c.note(ctx, failure)
	if failure != nil {
		return AccessStatus{}, failure
	}
	return answer.Status, nil
}
