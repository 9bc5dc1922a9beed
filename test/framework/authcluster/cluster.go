// Package authcluster is a cluster with users: by tokens, certificates, service accounts and the
// headers of a front proxy, with the rights that RBAC gives them, and with an audit log in which
// upstream records which user requested what. Spillway stands in front of it as a user of its own,
// which may read everything and review every token and permission, and nothing else.
package authcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
	"spillway/test/framework/wire"
)

// Self is Spillway's user upstream.
const Self controlplane.User = "spillway"

// FrontName is the only name in whose certificate a front proxy is believed.
const FrontName = "front"

// Options say what is there besides the usual.
type Options struct {
	// Users have tokens, and are in these groups.
	Users map[controlplane.User][]string
	// APIServerArgs come after our own.
	APIServerArgs []string
}

// Cluster is a running control plane and what its users need.
type Cluster struct {
	*controlplane.ControlPlane
	Admin   *kubernetes.Clientset
	Clients *controlplane.Authority // of client certificates
	Fronts  *controlplane.Authority // of front proxies
	Audit   *Audit

	dir   string
	roots *x509.CertPool
}

// Start starts a cluster that ends with the test.
func Start(t *testing.T, o Options) *Cluster {
	t.Helper()
	c := &Cluster{dir: t.TempDir(), roots: x509.NewCertPool()}
	c.Clients, c.Fronts = authority(t), authority(t)
	var flags []string
	flags, c.Audit = NewAudit(t)
	users := map[controlplane.User][]string{Self: nil}
	for user, groups := range o.Users {
		users[user] = groups
	}
	args := append([]string{
		"--client-ca-file=" + c.File(t, "clients.crt", c.Clients.PEM()),
		"--requestheader-client-ca-file=" + c.File(t, "fronts.crt", c.Fronts.PEM()),
	}, append(flags, FrontFlags()...)...)
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output(), Users: users,
		APIServerArgs: append(args, o.APIServerArgs...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	c.ControlPlane = cp
	c.roots.AppendCertsFromPEM(cp.CA())
	if c.Admin, err = kubernetes.NewForConfig(cp.Config(controlplane.Admin)); err != nil {
		t.Fatal(err)
	}
	c.introduce(t)
	return c
}

// FrontFlags are those by which kube-apiserver and Spillway believe a front proxy's headers alike;
// whose certificate is another flag's.
func FrontFlags() []string {
	return []string{
		"--requestheader-allowed-names=" + FrontName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
	}
}

// introduce gives Spillway its rights.
func (c *Cluster) introduce(t *testing.T) {
	t.Helper()
	self := User{Name: string(Self), Subject: user(string(Self))}
	c.Grant(t, self, Everywhere(Rule("get,list,watch", "*", "*")), Everywhere(
		Rule("create", "authentication.k8s.io", "tokenreviews"),
		Rule("create", "authorization.k8s.io", "subjectaccessreviews"),
	))
	if err := controlplane.WriteKubeconfig(c.Kubeconfig(Self), c.Config(Self)); err != nil {
		t.Fatal(err)
	}
}

func authority(t *testing.T) *controlplane.Authority {
	t.Helper()
	a, err := controlplane.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// File writes a file of the cluster's and returns its name. It replaces one of that name as a
// whole, as a kubelet does.
func (c *Cluster) File(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := c.path(name)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Kubeconfig is the file by which a user reaches the cluster.
func (c *Cluster) Kubeconfig(u controlplane.User) string { return c.path(string(u) + ".kubeconfig") }

// ProxyFlags are those of a proxy that stands in front of the cluster and leaves authentication and
// authorization to it.
func (c *Cluster) ProxyFlags() []string {
	return append([]string{
		"--kubeconfig=" + c.Kubeconfig(Self), "--listen=", "--listen-tls=127.0.0.1:0",
		"--client-ca-file=" + c.path("clients.crt"), "--requestheader-client-ca-file=" + c.path("fronts.crt"),
	}, FrontFlags()...)
}

// Direct is the way to upstream for a user.
func (c *Cluster) Direct(p User) wire.Address {
	return address(c.URL(), &tls.Config{RootCAs: c.roots, Certificates: p.Certificates})
}

// Through is the way to upstream for a user through a proxy's TLS listener. Its certificate is its
// own.
func Through(proxy *process.Proxy, p User) wire.Address {
	return address(proxy.TLS, &tls.Config{InsecureSkipVerify: true, Certificates: p.Certificates})
}

// Plainly is the way through its plain listener.
func Plainly(proxy *process.Proxy) wire.Address { return address(proxy.Plain, nil) }

func address(base string, config *tls.Config) wire.Address {
	u, err := url.Parse(base)
	if err != nil {
		panic(err) // all of them were made by programs of ours
	}
	if config != nil {
		config.ServerName = u.Hostname()
	}
	return wire.Address{Host: u.Host, TLS: config}
}

// Namespace makes a namespace.
func (c *Cluster) Namespace(t *testing.T, name string) {
	t.Helper()
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.Admin.CoreV1().Namespaces().Create(t.Context(), o, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// Settle waits until upstream's authorizer knows of all rights that were given up to now. It learns
// of roles and bindings by watches, and so of the last of each sort last.
func (c *Cluster) Settle(t *testing.T) {
	t.Helper()
	last := User{Name: "last-" + strings.ToLower(fmt.Sprint(time.Now().UnixNano()))}
	last.Subject = user(last.Name)
	c.Grant(t, last, Everywhere(Rule("get", "", "nodes")), In("default", Rule("get", "", "pods")))
	for _, what := range []authorizationv1.ResourceAttributes{{Verb: "get", Resource: "nodes"},
		{Verb: "get", Resource: "pods", Namespace: "default"}} {
		process.Awaiting(t, "upstream to know the last rights given", func(ctx context.Context) error {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: last.Name,
				ResourceAttributes: &what}}
			review, err := c.Admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = fmt.Errorf("not yet")
			}
			return err
		})
	}
}
