package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/upstream/transport"
)

const (
	// identityTimeout is how long a SelfSubjectReview may take.
	identityTimeout = 5 * time.Second
	// identityBytesLimit bounds how much is read of its answer.
	identityBytesLimit = 1 << 20
	// serviceAccountPrefix is how the names of service accounts begin.
	serviceAccountPrefix = "system:serviceaccount:"
)

// WhoAmI is all that upstream knows of the proxy, as a SelfSubjectReview returns it. It sends the
// request itself, because a client of client-go would repeat it while the answer has a Retry-After.
// When to repeat it is for the caller to decide.
func (c *Client) WhoAmI(ctx context.Context) (user authenticationv1.UserInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	review := authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectReview", APIVersion: "authentication.k8s.io/v1"},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return user, err
	}
	target := c.base.JoinPath("/apis/authentication.k8s.io/v1/selfsubjectreviews").String()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return user, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return user, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		answer := apierrors.NewGenericServerResponse(resp.StatusCode, "create", schema.GroupResource{}, "", "", 0, true)
		// It stays an APIStatus: by its code IsUnavailable tells callers to wait or to give up.
		return user, explain(answer, "the API server answered %s", resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, identityBytesLimit)).Decode(&review); err != nil {
		return user, err
	}
	return review.Status.UserInfo, nil
}

// DescribeIdentity is the proxy's identity at upstream for the log: a name, or "unknown (why)".
func (c *Client) DescribeIdentity(ctx context.Context) string {
	user, err := c.WhoAmI(ctx)
	if err != nil {
		return "unknown (" + transport.OneLine(withoutURL(err)) + ")"
	}
	if user.Username == "" {
		return "unknown (the API server did not say)"
	}
	return user.Username
}

// ServiceAccount is the name of the service account as which upstream knows the proxy. The text of
// its errors continues the name of the flag that needs the service account: "--sidecar-dir=DIR: is
// for pods".
func (c *Client) ServiceAccount(ctx context.Context) (string, error) {
	user, err := c.WhoAmI(ctx)
	if err != nil {
		return "", explain(err, "needs to know as which user the API server sees spillway: %s",
			transport.OneLine(withoutURL(err)))
	}
	if !strings.HasPrefix(user.Username, serviceAccountPrefix) {
		return "", fmt.Errorf("is for pods: spillway must run as their service account, but the API server takes it for %q",
			user.Username)
	}
	return user.Username, nil
}
