package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// T2: the proxy's own token is one that kube-apiserver warns of. Clients are warned of the
// resource, as directly, and of nothing else.
func TestWarningsAboutTheProxyAreNotItsClients(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{ControllerManager: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	admin, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	config := cp.Config(controlplane.Anonymous)
	config.BearerToken = legacyToken(t, admin)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	p := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+kubeconfig, "--resources=configmaps,endpoints")
	fresh, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "proxy",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cp.CA())
	direct := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	t.Cleanup(direct.CloseIdleConnections)
	warnings := func(client *http.Client, host, path, token string) []string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s%s: %s", host, path, response.Status)
		}
		var texts []string
		parsed, _ := utilnet.ParseWarningHeaders(response.Header.Values("Warning"))
		for _, w := range parsed {
			texts = append(texts, w.Text)
		}
		return texts
	}
	if got := warnings(direct, cp.URL(), "/version", config.BearerToken); len(got) != 1 {
		t.Fatalf("kube-apiserver warns of the proxy's token with %q: this tests nothing", got)
	}
	for path, least := range map[string]int{"/api/v1/configmaps?resourceVersion=0": 0,
		"/api/v1/endpoints?resourceVersion=0": 1} {
		want, got := warnings(direct, cp.URL(), path, fresh.Status.Token),
			warnings(http.DefaultClient, p.Plain, path, fresh.Status.Token)
		if len(want) != least || !slices.Equal(got, want) {
			t.Errorf("%s warns of %q, directly of %q", path, got, want)
		}
		t.Logf("%s: %q", path, got)
	}
	if n := process.Metric(t, p.Metrics, "spillway_cached_requests_total"); n != 2 {
		t.Errorf("%d answers from memory, want 2", n)
	}
}

// legacyToken is one from a Secret that its service account names, as clusters made them before
// 1.24.
func legacyToken(t *testing.T, admin kubernetes.Interface) string {
	t.Helper()
	ctx, core := t.Context(), admin.CoreV1()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "proxy"},
		Secrets: []corev1.ObjectReference{{Name: "proxy-token"}}}
	if _, err := core.ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "proxy"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "proxy"}},
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "proxy-token",
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "proxy"}},
		Type: corev1.SecretTypeServiceAccountToken,
	}
	if _, err := core.Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token := ""
	process.Awaiting(t, "the token of a Secret", func(ctx context.Context) error {
		made, err := core.Secrets("default").Get(ctx, secret.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if token = string(made.Data[corev1.ServiceAccountTokenKey]); token == "" {
			return fmt.Errorf("it has none yet")
		}
		return nil
	})
	return token
}
