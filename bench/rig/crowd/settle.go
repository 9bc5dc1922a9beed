package crowd

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/bench/rig"
)

// atOnce is how many objects are made at a time.
const atOnce = 32

// each does something n times, as many at once as kube-apiserver takes well.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// settle makes the namespaces, with what is watched in them and the rights to it.
func (c *Accounts) settle(ctx context.Context, client kubernetes.Interface) error {
	all := role("services", "", "services")
	if _, err := client.RbacV1().ClusterRoles().Create(
		ctx, &rbacv1.ClusterRole{ObjectMeta: all.ObjectMeta, Rules: all.Rules}, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: all.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: all.Name},
		Subjects:   group("system:serviceaccounts"),
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	return each(ctx, c.namespaces(), func(ctx context.Context, i int) error {
		if err := populate(ctx, client, namespace(i)); err != nil {
			return fmt.Errorf("namespace %s: %w", namespace(i), err)
		}
		return nil
	})
}

// populate makes a namespace, the objects in it, its roles, and the binding of its service
// accounts.
func populate(ctx context.Context, client kubernetes.Interface, name string) error {
	o := metav1.CreateOptions{}
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		o); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{
		Name: objectName, Annotations: map[string]string{"at": ""}, Labels: map[string]string{podLabel: objectName,
			sliceLabel: objectName},
	}
	if _, err := client.CoreV1().ConfigMaps(name).Create(
		ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"log-level": "info"}}, o); err != nil {
		return err
	}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{podLabel: objectName},
		Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
	}}
	if _, err := client.CoreV1().Services(name).Create(ctx, service, o); err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: meta,
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/team/web:v1.42.0"}}}}
	if _, err := client.CoreV1().Pods(name).Create(ctx, pod, o); err != nil {
		return err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
	if _, err := client.DiscoveryV1().EndpointSlices(name).Create(ctx, slice, o); err != nil {
		return err
	}
	roles := []*rbacv1.Role{
		role("configmaps", "", "configmaps"), role("pods", "", "pods"), role("endpointslices", discoveryv1.GroupName,
			"endpointslices"),
	}
	for _, r := range roles {
		if _, err := client.RbacV1().Roles(name).Create(ctx, r, o); err != nil {
			return err
		}
		if _, err := client.RbacV1().RoleBindings(name).Create(
			ctx, bind(r.Name, r.Name, group("system:serviceaccounts:"+name)), o); err != nil {
			return err
		}
	}
	return nil
}

// role allows to read a resource.
func role(name, apiGroup, resource string) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "crowd:" + name},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{apiGroup},
			Resources: []string{resource}}},
	}
}

// bind binds a role of a namespace.
func bind(name, role string, to []rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role",
			Name: role}, Subjects: to,
	}
}

func group(name string) []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}}
}

// enroll makes the members and returns their tokens.
func (c *Accounts) enroll(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	tokens := make([]string, c.n)
	err := each(ctx, c.n, func(ctx context.Context, i int) (err error) {
		home, name := namespace(c.home(i)), memberName(i)
		if isStranger(i) {
			subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: name}}
			if _, err := client.RbacV1().RoleBindings(namespace(c.podsOf(i))).Create(ctx, bind(name, "crowd:pods", subject),
				metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		tokens[i], err = rig.NewServiceAccount(ctx, client, home, name)
		return err
	})
	return tokens, err
}
