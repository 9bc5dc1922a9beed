package authcluster

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/controlplane"
)

// User is a user with credentials, good or not.
type User struct {
	Name         string
	Subject      rbacv1.Subject // as in bindings; zero: it cannot be in one
	Header       http.Header    // of each request
	Certificates []tls.Certificate
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

// Group is how a binding names a group.
func Group(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

// Bearer is a user with a token.
func Bearer(name, token string) User {
	return User{Name: name, Subject: user(name), Header: http.Header{"Authorization": {"Bearer " + token}}}
}

// User is one of those that have tokens from the start.
func (c *Cluster) User(name controlplane.User) User {
	return Bearer(string(name), c.Config(name).BearerToken)
}

// ServiceAccount makes a service account, and a token of it that is good for a while; 0: an hour.
// Audiences: none for upstream's own.
func (c *Cluster) ServiceAccount(t *testing.T, namespace, name string, lasts time.Duration,
	audiences ...string) User {
	t.Helper()
	o := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.Admin.CoreV1().ServiceAccounts(namespace).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := Bearer("system:serviceaccount:"+namespace+":"+name, c.Token(t, namespace, name, lasts, audiences...))
	p.Subject = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	return p
}

// Token makes one more token of a service account. Upstream makes none for less than ten minutes.
func (c *Cluster) Token(t *testing.T, namespace, name string, lasts time.Duration, audiences ...string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if lasts > 0 {
		seconds := int64(lasts / time.Second)
		request.Spec.ExpirationSeconds = &seconds
	}
	token, err := c.Admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, request,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// Certified is a user with a client certificate.
func (c *Cluster) Certified(t *testing.T, name string, groups ...string) User {
	t.Helper()
	pair, err := c.Clients.IssueClient(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return WithCertificate(t, name, pair)
}

// WithCertificate is a user with that certificate.
func WithCertificate(t *testing.T, name string, pair controlplane.KeyPair) User {
	t.Helper()
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return User{Name: name, Subject: user(name), Certificates: []tls.Certificate{certificate}}
}

// Vouched is a user that a front proxy vouches for, in the groups given.
func (c *Cluster) Vouched(t *testing.T, front, name string, groups ...string) User {
	t.Helper()
	pair, err := c.Fronts.IssueClient(front)
	if err != nil {
		t.Fatal(err)
	}
	p := WithCertificate(t, name, pair)
	p.Header = http.Header{"X-Remote-User": {name}, "X-Remote-Group": groups, "X-Remote-Uid": {"7"},
		"X-Remote-Extra-Team": {"a", "b"}}
	return p
}

// Anonymous has no credentials.
func Anonymous() User { return User{Name: "system:anonymous", Subject: user("system:anonymous")} }
