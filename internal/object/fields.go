package object

import "k8s.io/apimachinery/pkg/runtime/schema"

// fieldTable is what one built-in resource offers beyond metadata.name and metadata.namespace.
type fieldTable struct {
	fields      []Field
	noNamespace bool // upstream refuses metadata.namespace here
}

func field(dotted string) Field { return Field{Label: dotted, Path: path(dotted)} }

// perNode is a field whose value is one of as many as there are nodes.
func perNode(dotted string) Field { return Field{Label: dotted, Path: path(dotted), Indexed: true} }

func fieldOr(dotted, missing string) Field {
	return Field{Label: dotted, Path: path(dotted), Default: missing}
}

// builtinFields is W-152 and W-153: the selectable fields of every built-in resource that has any
// of its own. Events are missing, because they are never mirrored (design D2).
var builtinFields = map[schema.GroupResource]fieldTable{
	{Resource: "pods"}: {fields: []Field{
		perNode("spec.nodeName"),
		{Label: "spec.host", Path: path("spec.nodeName")},
		field("spec.restartPolicy"),
		field("spec.schedulerName"),
		field("spec.serviceAccountName"),
		fieldOr("spec.hostNetwork", "false"),
		field("status.phase"),
		field("status.podIP"),
		{Label: "status.podIPs"},
		field("status.nominatedNodeName"),
	}},
	{Resource: "nodes"}:      {fields: []Field{fieldOr("spec.unschedulable", "false")}, noNamespace: true},
	{Resource: "namespaces"}: {fields: []Field{field("status.phase")}, noNamespace: true},
	{Resource: "secrets"}:    {fields: []Field{field("type")}},
	{Resource: "services"}:   {fields: []Field{field("spec.clusterIP"), field("spec.type")}},
	{Resource: "replicationcontrollers"}: {fields: []Field{
		fieldOr("status.replicas", "0"),
	}},
	{Group: "batch", Resource: "jobs"}: {fields: []Field{
		{Label: "status.successful", Path: path("status.succeeded"), Default: "0"},
	}},
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}: {
		fields: []Field{field("spec.signerName")}, noNamespace: true,
	},
	{Group: "certificates.k8s.io", Resource: "clustertrustbundles"}: {
		fields: []Field{field("spec.signerName")}, noNamespace: true,
	},
	{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}: {
		fields: []Field{field("spec.signerName"), field("spec.podName"), perNode("spec.nodeName")}, noNamespace: true,
	},
	{Group: "resource.k8s.io", Resource: "resourceslices"}: {
		fields: []Field{perNode("spec.nodeName"), field("spec.driver"), perNode("spec.pool.name")}, noNamespace: true,
	},
}
