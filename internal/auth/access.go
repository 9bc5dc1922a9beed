package auth

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// ReviewRequest is the question whether an identity may do something.
type ReviewRequest struct {
	Identity   *Identity
	Attributes Attributes
}

// AccessStatus is upstream's answer to a ReviewRequest.
type AccessStatus = authorizationv1.SubjectAccessReviewStatus

// spec is the question as a review puts it.
func (q ReviewRequest) spec() authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{User: q.Identity.name, UID: q.Identity.uid, Groups: q.Identity.groups}
	if len(q.Identity.extra) > 0 {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(q.Identity.extra))
		for key, values := range q.Identity.extra {
			spec.Extra[key] = values
		}
	}
	a := q.Attributes
	if a.Path != "" {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.Path, Verb: a.Verb}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: a.Namespace, Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource,
		Subresource: a.Subresource, Name: a.Name,
		FieldSelector: fieldAttributes(a.FieldSelector), LabelSelector: labelAttributes(a.LabelSelector),
	}
	return spec
}

// fieldAttributes are the requirements of a field selector. One that cannot be parsed narrows
// nothing, and a requirement that is not known is left out, as upstream does: the review then
// covers more than the request wants.
func fieldAttributes(raw string) *authorizationv1.FieldSelectorAttributes {
	selector, err := fields.ParseSelector(raw)
	if err != nil {
		return nil
	}
	var all []metav1.FieldSelectorRequirement
	for _, r := range selector.Requirements() {
		one := metav1.FieldSelectorRequirement{Key: r.Field, Values: []string{r.Value}}
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals:
			one.Operator = metav1.FieldSelectorOpIn
		case selection.NotEquals:
			one.Operator = metav1.FieldSelectorOpNotIn
		default:
			continue
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil
	}
	return &authorizationv1.FieldSelectorAttributes{Requirements: all}
}

// labelOperators are those that a review knows. Others, for comparing numbers, are left out.
var labelOperators = map[selection.Operator]metav1.LabelSelectorOperator{
	selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn,
	selection.In:        metav1.LabelSelectorOpIn,
	selection.NotEquals: metav1.LabelSelectorOpNotIn, selection.NotIn: metav1.LabelSelectorOpNotIn,
	selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
}

// labelAttributes are the requirements of a label selector, as fieldAttributes.
func labelAttributes(raw string) *authorizationv1.LabelSelectorAttributes {
	selector, err := labels.Parse(raw)
	if err != nil {
		return nil
	}
	var all []metav1.LabelSelectorRequirement
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		if operator, known := labelOperators[r.Operator()]; known {
			all = append(all, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: operator, Values: r.ValuesUnsorted()})
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &authorizationv1.LabelSelectorAttributes{Requirements: all}
}
