package fakeapiserver

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// The resources that every Server serves.
var (
	Pods              = core("pods")
	ConfigMaps        = core("configmaps")
	Services          = core("services")
	Secrets           = core("secrets")
	Nodes             = core("nodes")
	Namespaces        = core("namespaces")
	Events            = core("events")
	ComponentStatuses = core("componentstatuses") // cannot be watched
	Deployments       = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	Widgets           = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"} // custom
	CRDs              = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
)

func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

// Resource is what the server knows of one resource.
type Resource struct {
	GVR        schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Custom resources print sorted keys, and their list items carry kind and apiVersion (W-60).
	Custom bool
	// Unwatchable resources can only be got and listed.
	Unwatchable bool
	// Fields are the selectable fields besides metadata.name and, if namespaced, metadata.namespace:
	// paths as in spec.nodeName.
	Fields []string
	// Deprecated is the warning in every answer about the resource, "" for none (W-4).
	Deprecated string

	isTyped bool // the kind is in client-go's scheme, so fields are printed in the order of its Go type
}

func builtins() []Resource {
	return []Resource{
		{GVR: Pods, Kind: "Pod", Namespaced: true, Fields: []string{
			"spec.nodeName", "spec.host", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
			"spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName"}},
		{GVR: ConfigMaps, Kind: "ConfigMap", Namespaced: true},
		{GVR: Services, Kind: "Service", Namespaced: true, Fields: []string{"spec.clusterIP", "spec.type"}},
		{GVR: Secrets, Kind: "Secret", Namespaced: true, Fields: []string{"type"}},
		{GVR: Nodes, Kind: "Node", Fields: []string{"spec.unschedulable"}},
		{GVR: Namespaces, Kind: "Namespace", Fields: []string{"status.phase"}},
		{GVR: Events, Kind: "Event", Namespaced: true, Fields: []string{
			"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
			"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
			"reportingComponent", "source", "type"}},
		{GVR: ComponentStatuses, Kind: "ComponentStatus", Unwatchable: true,
			Deprecated: "v1 ComponentStatus is deprecated in v1.19+"},
		{GVR: Deployments, Kind: "Deployment", Namespaced: true},
		{GVR: CRDs, Kind: "CustomResourceDefinition"},
		{GVR: Widgets, Kind: "Widget", Namespaced: true, Custom: true, Fields: []string{"spec.color", "spec.size"}},
	}
}

// complete is the resource with what follows from the rest.
func (r Resource) complete() *Resource {
	r.isTyped = !r.Custom && scheme.Scheme.Recognizes(r.gvk())
	r.Custom = r.Custom || !r.isTyped && r.GVR != CRDs
	return &r
}

func (r *Resource) gvk() schema.GroupVersionKind { return r.GVR.GroupVersion().WithKind(r.Kind) }

// key is where an object is stored; lists are sorted by it, bytewise (W-61).
func (r *Resource) key(namespace, name string) string {
	if r.Namespaced {
		return namespace + "/" + name
	}
	return name
}

// fieldLabel checks one term of a field selector and returns the label under which its value is
// kept (W-152).
func (r *Resource) fieldLabel(label, value string) (string, string, error) {
	switch {
	case label == "metadata.name":
	case label == "metadata.namespace" && (r.Namespaced || !r.Custom && len(r.Fields) == 0):
	case label == "spec.host" && r.GVR == Pods:
		label = "spec.nodeName"
	case slices.Contains(r.Fields, label):
	case r.Custom || len(r.Fields) > 0:
		return "", "", fmt.Errorf("field label not supported: %s", label)
	default:
		return "", "", fmt.Errorf("%q is not a known field selector: only %q, %q", label, "metadata.name",
			"metadata.namespace")
	}
	return label, value, nil
}

// fieldsOf reads the selectable fields of an object (W-153). A field that is missing has the value
// "".
func (r *Resource) fieldsOf(object map[string]any, namespace, name string) fields.Set {
	set := fields.Set{"metadata.name": name, "metadata.namespace": namespace}
	for _, label := range r.Fields {
		set[label] = fieldValue(object, label)
	}
	switch r.GVR {
	case Pods:
		set["spec.hostNetwork"] = strconv.FormatBool(set["spec.hostNetwork"] == "true")
		delete(set, "status.podIPs") // accepted and never set
	case Nodes:
		set["spec.unschedulable"] = strconv.FormatBool(set["spec.unschedulable"] == "true")
	case Events:
		if set["source"] = fieldValue(object, "source.component"); set["source"] == "" {
			set["source"] = set["reportingComponent"]
		}
	}
	return set
}

func fieldValue(object map[string]any, path string) string {
	v, ok, err := unstructured.NestedFieldNoCopy(object, split(path)...)
	if !ok || err != nil || v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
