package rig

import (
	"context"
	"fmt"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
)

// NewServiceAccount makes a service account and returns a token for it that outlives any program.
func NewServiceAccount(ctx context.Context, client kubernetes.Interface, namespace, name string) (token string,
	err error) {
	accounts := client.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{}); err != nil {
		return "", err
	}
	seconds := int64(12 * 60 * 60)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	granted, err := accounts.CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("a token for %s/%s: %w", namespace, name, err)
	}
	return granted.Status.Token, nil
}

// ProxyKubeconfig makes the service account that a proxy runs as in a cluster, which may read
// everything and make token and access reviews. The file it returns leads to the kube-apiserver
// that is compared: all that a proxy costs upstream is charged to that one.
func (p *Pair) ProxyKubeconfig(ctx context.Context) (string, error) {
	const namespace, name = "default", "spillway"
	client, err := kubernetes.NewForConfig(p.Config())
	if err != nil {
		return "", err
	}
	token, err := NewServiceAccount(ctx, client, namespace, name)
	if err != nil {
		return "", err
	}
	for _, role := range []string{"system:auth-delegator", "spillway:reader"} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + ":" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		}
		if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			return "", err
		}
	}
	path := filepath.Join(p.ControlPlane.Dir(), name+".kubeconfig")
	config := &rest.Config{Host: p.APIServer.URL, TLSClientConfig: rest.TLSClientConfig{CAData: p.ControlPlane.CA()},
		BearerToken: token}
	return path, controlplane.WriteKubeconfig(path, config)
}
