package auth

import (
	"context"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	selfReviewsPath       = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	selfAccessReviewsPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// selfReviewer asks upstream what each user may ask about itself, so that it needs no rights but
// those of system:basic-user, which all authenticated users have. Which identity a token proves,
// upstream says to the token; what an identity may do, it says to the proxy, and so only of the
// proxy's own identity.
type selfReviewer struct {
	*Reviewer
	bare http.RoundTripper
	name string
}

// NewSelfReviewer returns a Reviewer for clients that upstream knows by the proxy's own name: the
// containers of the pod that it runs in. It denies everything to all others. bare adds no
// credentials, and own the proxy's.
func NewSelfReviewer(of *Reviewer, bare http.RoundTripper, name string) *Reviewer {
	r := &Reviewer{base: of.base, http: of.http, log: of.log}
	r.reviewClient = selfReviewer{Reviewer: r, bare: bare, name: name}
	return r
}

// token implements reviewClient. A token that is for another audience is none here.
func (s selfReviewer) token(ctx context.Context, token Secret, _ []string) (authenticationv1.TokenReviewStatus, error) {
	review := authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectReview",
		APIVersion: "authentication.k8s.io/v1"}}
	var answer authenticationv1.SelfSubjectReview
	under := &http.Client{Transport: tokenTransport{s.bare, token}, CheckRedirect: noRedirects}
	failure := s.exchange(ctx, under, selfReviewsPath, &review, &answer)
	switch {
	case failure == nil:
		s.note(ctx, nil)
		return authenticationv1.TokenReviewStatus{Authenticated: true, User: answer.Status.UserInfo}, nil
	case failure.Code == http.StatusUnauthorized:
		s.note(ctx, nil)
		return authenticationv1.TokenReviewStatus{}, nil
	}
	failure.Review, failure.Reason = review.Kind, strings.ReplaceAll(failure.Reason, token.Reveal(), concealed)
	s.note(ctx, failure)
	return authenticationv1.TokenReviewStatus{}, failure
}

// access implements reviewClient.
func (s selfReviewer) access(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (AccessStatus, error) {
	if spec.User != s.name {
		return AccessStatus{Denied: true}, nil
	}
	review := authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: spec.ResourceAttributes, NonResourceAttributes: spec.NonResourceAttributes,
		},
	}
	var answer authorizationv1.SelfSubjectAccessReview
	if err := s.post(ctx, review.Kind, selfAccessReviewsPath, &review, &answer); err != nil {
		return AccessStatus{}, err
	}
	return answer.Status, nil
}

// tokenTransport sends requests under a token.
type tokenTransport struct {
	bare  http.RoundTripper
	token Secret
}

// RoundTrip implements http.RoundTripper.
func (u tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(authorizationHeader, "Bearer "+u.token.Reveal())
	return u.bare.RoundTrip(r)
}
