package plan

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	optionsvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"spillway/internal/object"
)

// collection is which objects a LIST or WATCH is for, and how.
type collection struct {
	*internalversion.ListOptions
	selector object.Selector
	// isSingle: upstream looks up one key, because the selector names it, instead of scanning a range.
	// Then a limit does not make a resourceVersion an exact one.
	isSingle bool
	// isNarrowed: upstream scans one namespace of all, because the selector names it. It does so for
	// the first page of a list only, although its token is relative to what was scanned (W-71).
	isNarrowed bool
}

// newCollection reads the scope of a request whose options are valid.
func newCollection(info *object.Resource, t Target, o *internalversion.ListOptions) collection {
	c := collection{ListOptions: o}
	namespace := t.namespace
	if namespace == "" && info.Namespaced && o.Continue == "" {
		selected, ok := o.FieldSelector.RequiresExactMatch("metadata.namespace")
		if c.isNarrowed = ok && len(validation.IsDNS1123Label(selected)) == 0; c.isNarrowed {
			namespace = selected
		}
	}
	name, _ := o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	c.isSingle = name != "" && len(content.IsPathSegmentName(name)) == 0 && o.Continue == "" &&
		(namespace != "" || !info.Namespaced)
	c.selector = object.NewSelector(namespace, name, o.LabelSelector, o.FieldSelector)
	return c
}

// scanned is the range that upstream scans for the collection. With an index it scans no more than
// that; but neither exact states nor the later pages of a list have one.
func (c collection) scanned(info *object.Resource, hasIndex bool) object.Selector {
	switch {
	case c.isSingle:
		return object.NewSelector(c.selector.Namespace, c.selector.Name, nil, nil)
	case hasIndex:
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

// decodeOptions reads the options of a LIST or WATCH with upstream's own code and in its order, so
// that it accepts the same, sets the same defaults, and words errors the same (W-24 to W-32, W-101,
// W-150, W-151). watchLists is upstream's gate WatchList.
func decodeOptions(query url.Values, watchLists bool) (*internalversion.ListOptions, error) {
	o := &internalversion.ListOptions{}
	if err := scheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	internalversion.SetListOptionsDefaults(o, watchLists)
	if errs := optionsvalidation.ValidateListOptions(o, watchLists); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if o.FieldSelector == nil { // there were no parameters at all
		o.FieldSelector = fields.Everything()
	}
	return o, nil
}

// oddSet is two commas at the end of a set in a label selector, "x in (a,,)": Kubernetes up to 1.34
// refuses it.
var oddSet = regexp.MustCompile(`,\s*,\s*\)`)

// hasOddSet reports that upstream alone knows whether a label selector is valid.
func hasOddSet(selectors []string) bool { return slices.ContainsFunc(selectors, oddSet.MatchString) }

// hasFields reports that the resource has every field which the selector names. Upstream refuses
// the others; but a newer one may have more fields than are known here, so such a request passes
// through (W-152, W-154).
func hasFields(info *object.Resource, f fields.Selector) bool {
	return !slices.ContainsFunc(f.Requirements(), func(r fields.Requirement) bool { return !info.Selectable(r.Field) })
}

// selectName adds the name of a deprecated watch's path to the field selector, which may only
// repeat it (W-33).
func selectName(f fields.Selector, name string) (fields.Selector, error) {
	if name == "" {
		return f, nil
	}
	if f.Empty() {
		return fields.OneTermEqualSelector(metav1.ObjectNameField, name), nil
	}
	if selected, ok := f.RequiresExactMatch(metav1.ObjectNameField); !ok || selected != name {
		return nil, apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
	}
	return f, nil
}

// parseRV reads a resourceVersion; "" is 0. Leading zeros count for nothing, but "00" is not the
// string "0" (W-27).
func parseRV(text string) (uint64, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	rv, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, field.Invalid(field.NewPath("resourceVersion"), text, err.Error())
	}
	return rv, nil
}
