package controlplane

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// readerRole allows reading everything. The built-in "view" is empty until a controller manager
// aggregates it.
const readerRole = "spillway:reader"

// bootstrap puts into the cluster what its users rely on: the default namespace and RBAC.
func (cp *ControlPlane) bootstrap(ctx context.Context) error {
	client, err := cp.admin()
	if err != nil {
		return err
	}
	if err := awaitNamespace(ctx, client, corev1.NamespaceDefault); err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: readerRole},
		Rules: []rbacv1.PolicyRule{{
			Verbs: []string{"get", "list", "watch"}, APIGroups: []string{rbacv1.APIGroupAll},
			Resources: []string{rbacv1.ResourceAll},
		}},
	}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: readerRole}
	alice := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "spillway:alice"},
		RoleRef:    ref,
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: string(Alice)}},
	}
	carol := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: readers},
		RoleRef:    ref,
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: readers}},
	}
	rbac, options := client.RbacV1(), metav1.CreateOptions{}
	_, err = rbac.ClusterRoles().Create(ctx, role, options)
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = rbac.RoleBindings(corev1.NamespaceDefault).Create(ctx, alice, options)
	}
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = rbac.ClusterRoleBindings().Create(ctx, carol, options)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot set up RBAC: %w", err)
	}
	for _, may := range []authorizationv1.SubjectAccessReviewSpec{
		{User: string(Alice), ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "configmaps",
			Namespace: corev1.NamespaceDefault}},
		{User: string(Carol), Groups: []string{readers}, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list",
			Resource: "configmaps"}},
	} {
		if err := awaitRight(ctx, client, may); err != nil {
			return err
		}
	}
	return nil
}

// awaitRight waits until kube-apiserver's authorizer, which learns of roles and bindings by
// watches, permits a user something.
func awaitRight(ctx context.Context, client kubernetes.Interface, may authorizationv1.SubjectAccessReviewSpec) error {
	err := wait.PollUntilContextTimeout(ctx, probeEvery, time.Minute, true, func(ctx context.Context) (bool, error) {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(
			ctx, &authorizationv1.SubjectAccessReview{Spec: may}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err
	})
	if err != nil {
		return fmt.Errorf("rights of %s: %w", may.User, err)
	}
	return nil
}

// awaitNamespace waits for a namespace that kube-apiserver creates by itself, some time after it is
// ready.
func awaitNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	err := wait.PollUntilContextTimeout(ctx, probeEvery, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}
