package permissions

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const gemGroup = "permissions.example.com"

var gems = schema.GroupVersionResource{Group: gemGroup, Version: "v1", Resource: "gems"}

// canary is the text of which no byte may be in a refusal. Each object holds another text that
// begins so and goes on with its namespace, where metadata alone shows it, too.
const canary = "canary-"

// secretly is what the texts of Secrets begin with.
const secretly = canary + "secret-"

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{"team": name},
		Annotations: map[string]string{"song": canary + namespace + "-" + rand.Text()},
	}
}

// makeObjects makes what the requests are for.
func makeObjects(t *testing.T, c *authcluster.Cluster) {
	t.Helper()
	for _, name := range []string{"red", "blue", "green"} {
		c.Namespace(t, name)
	}
	ctx, core, create := t.Context(), c.Admin.CoreV1(), metav1.CreateOptions{}
	var errs []error
	note := func(_ any, err error) { errs = append(errs, err) }
	for _, o := range []struct{ namespace, name string }{{"red", "a"}, {"red", "b"}, {"red", "c"}, {"blue", "a"},
		{"blue", "d"}, {"green", "g"}} {
		m := meta(o.namespace, o.name)
		note(core.ConfigMaps(o.namespace).Create(
			ctx, &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"song": m.Annotations["song"]}}, create))
		m = meta(o.namespace, o.name)
		m.Annotations["song"] = secretly + rand.Text()
		note(core.Secrets(o.namespace).Create(
			ctx, &corev1.Secret{ObjectMeta: m, StringData: map[string]string{"song": secretly}}, create))
		note(core.Services(o.namespace).Create(ctx, &corev1.Service{ObjectMeta: meta(o.namespace, o.name),
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}}, create))
		note(core.Pods(o.namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: meta(o.namespace, o.name), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, create))
		labels := map[string]string{"app": o.name}
		note(c.Admin.AppsV1().Deployments(o.namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: meta(o.namespace, o.name),
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				},
			}}, create))
	}
	for _, name := range []string{"n1", "n2"} {
		note(core.Nodes().Create(ctx, &corev1.Node{ObjectMeta: meta("", name)}, create))
	}
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	makeGems(t, c)
}

// makeGems defines a custom resource, and makes some of it.
func makeGems(t *testing.T, c *authcluster.Cluster) {
	t.Helper()
	config := c.Config(controlplane.Admin)
	definitions, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	keep := true
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gems." + gemGroup},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gemGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gems", Singular: "gem", Kind: "Gem",
				ListKind: "GemList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
	if _, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []struct{ namespace, name string }{{"red", "a"}, {"red", "b"}, {"blue", "a"}} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gemGroup + "/v1", "kind": "Gem"}}
		m := meta(o.namespace, o.name)
		u.SetName(m.Name)
		u.SetLabels(m.Labels)
		u.SetAnnotations(m.Annotations)
		process.Awaiting(t, "gems to be served", func(ctx context.Context) error {
			if _, err := client.Resource(gems).Namespace(o.namespace).Create(ctx, u, metav1.CreateOptions{}); err != nil &&
				!apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("a gem: %w", err)
			}
			return nil
		})
	}
}
