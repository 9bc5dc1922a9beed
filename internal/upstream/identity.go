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

// identityTimeout is how long a SelfSubjectReview may take.
const identityTimeout = 5 * time.Second

// Identity is the proxy's identity at upstream, as a SelfSubjectReview returns it, or why that is
// not known.
func (c *Client) Identity(ctx context.Context) string {
	user, err := c.WhoAmI(ctx)
	if err != nil {
		return "unknown (" + transport.OneLine(err) + ")"
	}
	if user.Username == "" {
		return "unknown (upstream did not say)"
	}
	return user.Username
}

// serviceAccounts is how the names of service accounts begin.
const serviceAccounts = "system:serviceaccount:"

// ServiceAccount is the name of the service account as which upstream knows the proxy. Its errors
// end a sentence that begins with the flag which needs it.
func (c *Client) ServiceAccount(ctx context.Context) (string, error) {
	user, err := c.WhoAmI(ctx)
	if err != nil {
		return "", explain(err, "needs to know as which user the API server sees spillway: %s", transport.OneLine(err))
	}
	if !strings.HasPrefix(user.Username, serviceAccounts) {
		return "", fmt.Errorf("is for pods: spillway must run as their service account, but the API server takes it for %q",
			user.Username)
	}
	return user.Username, nil
}

// WhoAmI is all that upstream knows of the proxy, as a SelfSubjectReview returns it.
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
		return user, explain(answer, "upstream answered %s", resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&review); err != nil {
		return user, err
	}
	return review.Status.UserInfo, nil
}
