package limits

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Rules are those of a namespace by which kube-apiserver refuses pods after its webhooks. This file
// is the closed table of those that injection follows, which D30 gives as a table. A rule that is
// not in it leaves the pod as it is.
type Rules struct {
	Ranges []*corev1.LimitRange
	Quotas []*corev1.ResourceQuota
}

// RuleError names a rule that keeps a pod from having a sidecar.
type RuleError struct {
	Rule   string
	IsFull bool // the rule is one of the table, with too little room; or else it is not in the table
}

func (e *RuleError) Error() string { return e.Rule }

func newFullError(format string, args ...any) error {
	return &RuleError{fmt.Sprintf(format, args...), true}
}

func newUnknownRuleError(format string, args ...any) error {
	return &RuleError{fmt.Sprintf(format, args...), false}
}

// hasRuleFor reports that a rule is about a resource.
func (r *Rules) hasRuleFor(name corev1.ResourceName) bool {
	return slices.ContainsFunc(r.rangeItems(), func(i rangeItem) bool { return slices.Contains(i.names(), name) }) ||
		slices.ContainsFunc(r.Quotas, func(q *corev1.ResourceQuota) bool {
			return slices.ContainsFunc([]corev1.ResourceName{name, "requests." + name, "limits." + name},
				func(n corev1.ResourceName) bool {
					_, set := hardOf(q)[n]
					return set
				})
		})
}

// rangeItem is one limit of a LimitRange.
type rangeItem struct {
	corev1.LimitRangeItem
	of string
}

func (r *Rules) rangeItems() (all []rangeItem) {
	for _, of := range r.Ranges {
		for _, item := range of.Spec.Limits {
			all = append(all, rangeItem{item, of.Name})
		}
	}
	return all
}

// names are the resources that an item is about, in order.
func (i rangeItem) names() []corev1.ResourceName {
	all := map[corev1.ResourceName]bool{}
	for _, list := range []corev1.ResourceList{i.Min, i.Max, i.Default, i.DefaultRequest, i.MaxLimitRequestRatio} {
		for name := range list {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// clamp returns the size next to a wanted one that the LimitRanges allow containers. Where a min is
// above a max there is none.
func (r *Rules) clamp(name corev1.ResourceName, size resource.Quantity) resource.Quantity {
	items := slices.DeleteFunc(r.rangeItems(), func(i rangeItem) bool { return i.Type != corev1.LimitTypeContainer })
	for _, i := range items {
		size = larger(size, i.Min[name])
	}
	for _, i := range items {
		if q, set := i.Max[name]; set && size.Cmp(q) > 0 {
			size = q
		}
	}
	return size
}

// applyRanges fits a sidecar into the LimitRanges, whose defaults it takes nothing of: it says 0 of
// what it has not. pod is what the pod has as a whole, with the sidecar.
func (r *Rules) applyRanges(s *Size, pod corev1.ResourceRequirements) error {
	for _, i := range r.rangeItems() {
		var err error
		switch {
		case i.Type == corev1.LimitTypeContainer:
			err = i.applyToContainer(s)
		case i.Type == corev1.LimitTypePod && s.isSized():
			err = i.checkPod(pod)
		case i.Type == corev1.LimitTypePod, i.Type == corev1.LimitTypePersistentVolumeClaim,
			strings.Contains(string(i.Type), "/"): // of an extension, which is not about pods
		default:
			err = newUnknownRuleError("LimitRange %s has a limit of type %s", i.of, i.Type)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// applyToContainer checks the size of a sidecar. Its requests are its limits, so every ratio holds.
// It sets 0 for resources that the sidecar does not have, which keeps a max.
func (i rangeItem) applyToContainer(s *Size) error {
	for _, name := range i.names() {
		size := s.Requests[name]
		least := i.Min[name]
		most, hasMax := i.Max[name]
		_, hasRatio := i.MaxLimitRequestRatio[name]
		_, hasDefault := i.Default[name]
		switch {
		case size.IsZero() && (least.Sign() > 0 || hasRatio):
			return newUnknownRuleError("LimitRange %s demands %s of every container", i.of, name)
		case size.IsZero():
			s.Requests[name] = resource.Quantity{}
			if hasDefault || hasMax || name != corev1.ResourceEphemeralStorage {
				s.Limits[name] = resource.Quantity{} // of extended resources it is the request
			}
		case size.Cmp(least) < 0:
			return newFullError("LimitRange %s: min of %s per Container is %s", i.of, name, least.String())
		case hasMax && size.Cmp(most) > 0:
			return newFullError("LimitRange %s: max of %s per Container is %s", i.of, name, most.String())
		}
	}
	return nil
}

// checkPod checks a pod with its sidecar. A min is kept, since sums grow; a ratio may grow where
// init containers precede the sidecar.
func (i rangeItem) checkPod(pod corev1.ResourceRequirements) error {
	for _, name := range Computed {
		if _, set := i.MaxLimitRequestRatio[name]; set {
			return newUnknownRuleError("LimitRange %s has a maxLimitRequestRatio of %s per Pod", i.of, name)
		}
		most, set := i.Max[name]
		request, limit := pod.Requests[name], pod.Limits[name]
		if set && (request.Cmp(most) > 0 || limit.Cmp(most) > 0) {
			return newFullError("LimitRange %s: max of %s per Pod is %s", i.of, name, most.String())
		}
	}
	return nil
}

// checkQuotas checks what is left of the quotas that select a pod. Injection changes no property by
// which they select, unless mayChange: then a sidecar with a size may change the pod's class.
func (r *Rules) checkQuotas(pod *corev1.Pod, total corev1.ResourceRequirements, mayChange bool) error {
	for _, q := range r.Quotas {
		selected := true
		for _, scope := range scopesOf(q) {
			is, known := isInScope(scope, pod)
			switch {
			case !known:
				return newUnknownRuleError("ResourceQuota %s has the scope %s", q.Name, scope.ScopeName)
			case mayChange && (scope.ScopeName == corev1.ResourceQuotaScopeBestEffort ||
				scope.ScopeName == corev1.ResourceQuotaScopeNotBestEffort):
				return newUnknownRuleError("ResourceQuota %s has the scope %s, and the pod's containers are BestEffort without a "+
					"sidecar that has a size", q.Name, scope.ScopeName)
			}
			selected = selected && is
		}
		if !selected {
			continue
		}
		hard, usage := hardOf(q), usageOf(total)
		for _, name := range slices.Sorted(maps.Keys(usage)) {
			used, sum := q.Status.Used[name], sumOf(q.Status.Used[name], usage[name])
			if bound, set := hard[name]; set && sum.Cmp(bound) > 0 {
				return newFullError("ResourceQuota %s has too little left of %s (%s of %s are used)", q.Name, name, used.String(),
					bound.String())
			}
		}
	}
	return nil
}

// hardOf are the bounds of a quota: what its controller has acknowledged, and what it will.
func hardOf(q *corev1.ResourceQuota) corev1.ResourceList {
	hard := q.Status.Hard.DeepCopy()
	if hard == nil {
		hard = corev1.ResourceList{}
	}
	for name, bound := range q.Spec.Hard {
		if other, set := hard[name]; !set || bound.Cmp(other) < 0 {
			hard[name] = bound
		}
	}
	return hard
}

func scopesOf(q *corev1.ResourceQuota) (all []corev1.ScopedResourceSelectorRequirement) {
	for _, scope := range q.Spec.Scopes {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: scope,
			Operator: corev1.ScopeSelectorOpExists})
	}
	if s := q.Spec.ScopeSelector; s != nil {
		all = append(all, s.MatchExpressions...)
	}
	return all
}

// isInScope reports that a pod is in a scope of quotas, or may be, and that the scope is known.
func isInScope(r corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) (is, known bool) {
	terminating := pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating, true
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating, true
	case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort:
		bestEffort := isBestEffort(pod, resourcehelper.PodResourcesOptions{})
		return bestEffort == (r.ScopeName == corev1.ResourceQuotaScopeBestEffort), true
	case corev1.ResourceQuotaScopePriorityClass:
		return hasPriority(r, pod.Spec.PriorityClassName), true
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ResourceQuotaScopeVolumeAttributesClass:
		return true, true
	}
	return false, false
}

// operators are those of scope selectors.
var operators = map[corev1.ScopeSelectorOperator]selection.Operator{
	corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
	corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
}

// hasPriority matches a class of priority as labels are matched. In doubt it matches.
func hasPriority(r corev1.ScopedResourceSelectorRequirement, class string) bool {
	const key = string(corev1.ResourceQuotaScopePriorityClass)
	var of labels.Set
	if class != "" {
		of = labels.Set{key: class}
	}
	requirement, err := labels.NewRequirement(key, operators[r.Operator], r.Values)
	return err != nil || requirement.Matches(of)
}
