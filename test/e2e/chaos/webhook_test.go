package chaos

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
)

// webhook is an authorizer of kube-apiserver for what RBAC does not allow: guests have their rights
// from it alone.
type webhook struct {
	link    *Link // kube-apiserver → webhook
	failing atomic.Bool
}

// newWebhook returns it with the flags by which kube-apiserver sends it reviews, and caches as few
// of them as can be had.
func newWebhook(t *testing.T, dir string) (*webhook, []string) {
	t.Helper()
	authority, err := controlplane.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.IssueServer("webhook")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	h := &webhook{}
	server := httptest.NewUnstartedServer(h)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)
	h.link = newLinkOf(t, server.Listener.Addr().String())
	config := filepath.Join(dir, "webhook.kubeconfig")
	err = controlplane.WriteKubeconfig(config,
		&rest.Config{Host: "https://" + h.link.Address(), TLSClientConfig: rest.TLSClientConfig{CAData: authority.PEM()}})
	if err != nil {
		t.Fatal(err)
	}
	return h, []string{
		"--authorization-mode=Webhook", "--authorization-webhook-config-file=" + config, "--authorization-webhook-version=v1",
		"--authorization-webhook-cache-authorized-ttl=1s", "--authorization-webhook-cache-unauthorized-ttl=1s",
	}
}

// ServeHTTP implements http.Handler.
func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if h.failing.Load() || json.NewDecoder(r.Body).Decode(&review) != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	what := review.Spec.ResourceAttributes
	review.Status.Allowed = review.Spec.User == string(guestUser) && what != nil &&
		slices.Contains([]string{"get", "list", "watch"}, what.Verb)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&review) // fails for an API server that has given up
}
