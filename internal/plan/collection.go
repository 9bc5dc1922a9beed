package plan

import (
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"

	"spillway/internal/object"
)

// collection is which objects a LIST or WATCH asks for, and how.
type collection struct {
	*internalversion.ListOptions
	selector object.Selector
	// single: upstream looks up one key, since the selector names it, instead of scanning a range.
	// Then a limit does not make a resourceVersion an exact one.
	single bool
	// narrowed: upstream scans one namespace of all, since the selector names it. It does so for the
	// first page of a list only, although its token is relative to what was scanned (W-71).
	narrowed bool
}

// newCollection reads the scope of a request that is otherwise in order.
func newCollection(info *object.Resource, t Target, o *internalversion.ListOptions) collection {
	c := collection{ListOptions: o}
	name, named := o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	namespace := t.namespace
	if field, ok := o.FieldSelector.RequiresExactMatch("metadata.namespace"); ok && namespace == "" && info.Namespaced &&
		o.Continue == "" {
		if c.narrowed = len(validation.IsDNS1123Label(field)) == 0; c.narrowed {
			namespace = field
		}
	}
	c.single = named && name != "" && len(content.IsPathSegmentName(name)) == 0 && o.Continue == "" &&
		(namespace != "" || !info.Namespaced)
	c.selector = object.NewSelector(namespace, name, o.LabelSelector, o.FieldSelector)
	return c
}

// scanned is the range that upstream scans for the collection. Where it has an index it scans no
// more than that; but neither exact states nor the rest of a list have one.
func (c collection) scanned(info *object.Resource, indexed bool) object.Selector {
	switch {
	case c.single:
		return object.NewSelector(c.selector.Namespace, c.selector.Name, nil, nil)
	case indexed:
		return object.NewSelector(c.selector.Namespace, "", nil, nodeIndex(info, c.FieldSelector))
	}
	return object.NewSelector(c.selector.Namespace, "", nil, nil)
}

// nodeIndex is the part of a field selector for which upstream's cache has an index: what is on one
// node.
func nodeIndex(info *object.Resource, f fields.Selector) fields.Selector {
	switch info.String() {
	case "pods", "resourceslices.resource.k8s.io":
		for _, label := range []string{"spec.nodeName", "spec.host"} {
			if node, ok := f.RequiresExactMatch(label); ok {
				return fields.OneTermEqualSelector(label, node)
			}
		}
	}
	return nil
}
