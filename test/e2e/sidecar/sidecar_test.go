// Package sidecar runs the proxy as it runs in a pod, as the pod's own service account, which has
// no rights but to read some things: clients in the pod get what it may read, and any other client
// that reaches the listener gets nothing.
package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// pod is a service account with the right to read config maps, and the proxy beside it.
type pod struct {
	t     *testing.T
	cp    *controlplane.ControlPlane
	admin *kubernetes.Clientset
}

func newPod(t *testing.T) *pod {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	admin, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{t: t, cp: cp, admin: admin}
	for _, name := range []string{"app", "other"} {
		meta := metav1.ObjectMeta{Name: name}
		if _, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"},
			Verbs: []string{"get", "list", "watch"}}},
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "app"},
			{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "other"},
		},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return p
}

// token is a new one of a service account.
func (p *pod) token(account string) string {
	p.t.Helper()
	token, err := p.admin.CoreV1().ServiceAccounts("default").CreateToken(p.t.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return token.Status.Token
}

// kubeconfig is a file with the credentials of a service account.
func (p *pod) kubeconfig(account string) string {
	p.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: p.cp.URL(), CertificateAuthorityData: p.cp.CA()}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: p.token(account)}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	name := filepath.Join(p.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, name); err != nil {
		p.t.Fatal(err)
	}
	return name
}

// answer is what the proxy said, and whether it sent a request upstream.
type answer struct {
	code     int
	upstream bool
	body     string
}

func (p *pod) ask(proxy *process.Proxy, method, target, token string) answer {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, proxy.Plain+target, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") != "", string(body)}
}

// A sidecar needs no rights but its pod's own, and serves no client but its pod's.
func TestSidecarServesOnlyItsPod(t *testing.T) {
	p := newPod(t)
	binary := process.BuildProxy(t)
	proxy := process.StartProxy(t, binary, "--kubeconfig="+p.kubeconfig("app"), "--listen-identity=pod-token",
		"--resources=configmaps")
	own, rotated, other := p.token("app"), p.token("app"), p.token("other")
	const maps = "/api/v1/namespaces/default/configmaps"
	for _, c := range []struct {
		name, method, target, token string
		code                        int
		upstream                    bool
	}{
		{"its own list", "GET", maps + "?resourceVersion=0", own, 200, false},
		{"after its token was rotated", "GET", maps + "?resourceVersion=0", rotated, 200, false},
		{"everything", "GET", "/api/v1/configmaps?resourceVersion=0", own, 200, false},
		{"what is not mirrored, and not allowed", "GET", "/api/v1/namespaces/default/secrets", own, 403, true},
		{"a write that is not allowed", "DELETE", maps, own, 403, true},
		{"another pod's, who might", "GET", maps + "?resourceVersion=0", other, 403, false},
		{"another pod's write", "DELETE", maps, other, 403, false},
		{"nobody's", "GET", maps + "?resourceVersion=0", "", 401, false},
		{"nobody's, and open to all", "GET", "/version", "", 401, false},
		{"a forged one", "GET", maps + "?resourceVersion=0", own + "x", 401, false},
	} {
		if got := p.ask(proxy, c.method, c.target, c.token); got.code != c.code || got.upstream != c.upstream {
			t.Errorf("%s: %d, upstream: %v, %s; want %d, %v", c.name, got.code, got.upstream, got.body, c.code, c.upstream)
		}
	}
	p.watchEnds(proxy, maps, own)
}

// watchEnds deletes the service account under a watch.
func (p *pod) watchEnds(proxy *process.Proxy, maps, token string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, proxy.Plain+maps+
		"?watch=1&resourceVersion=0&allowWatchBookmarks=1", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	events := json.NewDecoder(resp.Body)
	var first any
	if err := events.Decode(&first); err != nil {
		p.t.Fatal(err)
	}
	if err := p.admin.CoreV1().ServiceAccounts("default").Delete(ctx, "app", metav1.DeleteOptions{}); err != nil {
		p.t.Fatal(err)
	}
	deleted := time.Now()
	for err == nil {
		var event any
		err = events.Decode(&event)
	}
	if !errors.Is(err, io.EOF) {
		p.t.Errorf("the watch ended badly: %v", err)
	}
	p.t.Logf("the watch ended %v after its service account was deleted", time.Since(deleted).Round(100*time.Millisecond))
}

// Outside of a pod the proxy cannot run this way, and says so.
func TestSidecarModeFailsOutsideOfPods(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	start := exec.CommandContext(t.Context(), process.BuildProxy(t), "--kubeconfig="+cp.Kubeconfig(controlplane.Admin),
		"--listen-identity=pod-token", "--resources=pods", "--listen=127.0.0.1:0", "--metrics-listen=")
	var said bytes.Buffer
	start.Stderr = &said
	if err := start.Run(); err == nil ||
		!strings.Contains(said.String(),
			"--listen-identity=pod-token: is for pods: spillway must run as their service account") {
		t.Errorf("%v: %s", err, said.String())
	}
}
