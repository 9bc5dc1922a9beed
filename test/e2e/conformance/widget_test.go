package conformance

import (
	"context"
	"maps"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// makeDefinition makes the CRD of the widgets: v1 is mirrored, v1beta1 is not.
func (w *world) makeDefinition(t *testing.T) {
	t.Helper()
	client, err := apiextensions.NewForConfig(w.cp.Config(controlplane.Admin))
	must(t, err)
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	_, err = definitions.Create(t.Context(), definition(), metav1.CreateOptions{})
	must(t, err)
	process.Awaiting(t, "the widgets to be served", func(ctx context.Context) error {
		_, err := w.dynamic.Resource(widgets).List(ctx, metav1.ListOptions{})
		return err
	})
}

func definition() *apiextensionsv1.CustomResourceDefinition {
	property := func(kind string) apiextensionsv1.JSONSchemaProps { return apiextensionsv1.JSONSchemaProps{Type: kind} }
	// The description differs, because what is equal in all versions is stored apart, where selectable
	// fields are refused.
	structural := func(version string) *apiextensionsv1.CustomResourceValidation {
		return &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Description: version, Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"size": property("integer"), "color": property("string"), "note": property("string"), "ratio": property("number"),
					"on": property("boolean"),
				}},
				"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"phase": property("string")}},
			},
		}}
	}
	warning := "widgets are old news"
	versions := map[string]apiextensionsv1.CustomResourceDefinitionVersion{
		"v1": {Storage: true, SelectableFields: []apiextensionsv1.SelectableField{
			{JSONPath: ".spec.color"}, {JSONPath: ".spec.size"}, {JSONPath: ".spec.on"},
		}},
		"v1beta1": {Deprecated: true, DeprecationWarning: &warning},
	}
	d := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + widgetGroup},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgetGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget",
				ListKind: "WidgetList"},
		},
	}
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		v := versions[name]
		v.Name, v.Served, v.Schema = name, true, structural(name)
		v.Subresources = &apiextensionsv1.CustomResourceSubresources{
			Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
		}
		v.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Size", Type: "integer",
			JSONPath: ".spec.size"}}
		d.Spec.Versions = append(d.Spec.Versions, v)
	}
	return d
}
