package auth

import (
	"context"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	selfReviewsPath       = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	selfAccessReviewsPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// selfReviewClient asks the API server what each user may ask about itself. So it needs no rights
// but those of system:basic-user, which all authenticated users have. It asks which identity a
// token proves under that token. It asks what an identity may do under the proxy's own credentials,
// and so only about the proxy's own identity.
type selfReviewClient struct {
	*reviewSender
	bare http.RoundTripper // adds no credentials
	name string            // of the proxy's own identity
}

// NewSelfReviewer returns a Reviewer for clients that have the proxy's own identity, whose name is
// given: the containers of the pod that it runs in. It denies everything to all others. It sends
// under the same credentials as of does; bare adds none.
func NewSelfReviewer(of *Reviewer, bare http.RoundTripper, name string) *Reviewer {
	sender := &reviewSender{base: of.base, own: of.own, log: of.log}
	client := selfReviewClient{reviewSender: sender, bare: bare, name: name}
	return &Reviewer{sender, client}
}

// token implements reviewClient. A token that is for another audience is none here.
func (c selfReviewClient) token(ctx context.Context, token Secret, _ []string) (authenticationv1.TokenReviewStatus,
	error) {
	review := authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectReview",
		APIVersion: "authentication.k8s.io/v1"}}
	var answer authenticationv1.SelfSubjectReview
	under := &http.Client{Transport: tokenTransport{c.bare, token}, CheckRedirect: noRedirects}
	failure := c.exchange(ctx, under, selfReviewsPath, &review, &answer)
	switch {
	case failure == nil:
		c.note(ctx, nil)
		return authenticationv1.TokenReviewStatus{Authenticated: true, User: answer.Status.UserInfo}, nil
	case failure.Code == http.StatusUnauthorized: // an answer: the API server does not know the token
		c.note(ctx, nil)
		return authenticationv1.TokenReviewStatus{}, nil
	}
	failure.conceal(token)
	c.note(ctx, failure)
	return authenticationv1.TokenReviewStatus{}, failure
}

// access implements reviewClient.
func (c selfReviewClient) access(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (AccessStatus,
	error) {
	if spec.User != c.name {
		return AccessStatus{Denied: true}, nil
	}
	review := authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: spec.ResourceAttributes, NonResourceAttributes: spec.NonResourceAttributes,
		},
	}
	var answer authorizationv1.SelfSubjectAccessReview
	failure := c.exchange(ctx, c.own, selfAccessReviewsPath, &review, &answer)
	c.note(ctx, failure)
	if failure != nil {
		return AccessStatus{}, failure
	}
	return answer.Status, nil
}

// tokenTransport sends requests under a token.
type tokenTransport struct {
	bare  http.RoundTripper
	token Secret
}

// RoundTrip implements http.RoundTripper.
func (t tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(authorizationHeader, "Bearer "+t.token.Reveal())
	return t.bare.RoundTrip(r)
}
