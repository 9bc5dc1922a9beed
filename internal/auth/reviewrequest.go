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

// AccessStatus is the API server's answer to a ReviewRequest.
type AccessStatus = authorizationv1.SubjectAccessReviewStatus

// isText reports that a review, which is JSON, asks exactly this question.
func (q ReviewRequest) isText() bool {
	a := q.Attributes
	return q.Identity.isText() &&
		isText(a.Verb, a.Path, a.Group, a.Version, a.Resource, a.Subresource, a.Namespace, a.Name, a.FieldSelector,
			a.LabelSelector)
}

// spec is the question as a SubjectAccessReview puts it.
func (q ReviewRequest) spec() authorizationv1.SubjectAccessReviewSpec {
	user := q.Identity.UserInfo()
	spec := authorizationv1.SubjectAccessReviewSpec{User: user.Username, UID: user.UID, Groups: user.Groups}
	if len(user.Extra) > 0 {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(user.Extra))
		for key, values := range user.Extra {
			spec.Extra[key] = authorizationv1.ExtraValue(values)
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

// fieldOperators are those that a review knows.
var fieldOperators = map[selection.Operator]metav1.FieldSelectorOperator{
	selection.Equals: metav1.FieldSelectorOpIn, selection.DoubleEquals: metav1.FieldSelectorOpIn,
	selection.NotEquals: metav1.FieldSelectorOpNotIn,
}

// fieldAttributes are the requirements of a field selector. As the API server does it, one that
// cannot be parsed narrows nothing, and a requirement that a review does not know is left out: the
// review then covers more than the request wants.
func fieldAttributes(raw string) *authorizationv1.FieldSelectorAttributes {
	selector, err := fields.ParseSelector(raw)
	if err != nil {
		return nil
	}
	var all []metav1.FieldSelectorRequirement
	for _, r := range selector.Requirements() {
		if operator, known := fieldOperators[r.Operator]; known {
			all = append(all, metav1.FieldSelectorRequirement{Key: r.Field, Operator: operator, Values: []string{r.Value}})
		}
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
