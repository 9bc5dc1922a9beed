package limits

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	resourcehelper "k8s.io/component-helpers/resource"
)

// checkQuotas checks that the quotas that select a pod have room for total, the pod with its
// sidecar. Quotas select by properties that injection does not change, with one exception: if
// mayChangeClass, a sidecar with a size may change whether the pod is BestEffort.
func (r *Rules) checkQuotas(pod *corev1.Pod, total corev1.ResourceRequirements, mayChangeClass bool) error {
	for _, q := range r.Quotas {
		isSelected, err := selects(q, pod, mayChangeClass)
		if err != nil {
			return err
		}
		if !isSelected {
			continue
		}
		if err := checkQuota(q, usageOf(total)); err != nil {
			return err
		}
	}
	return nil
}

// selects reports whether all scopes of a quota have a pod in them.
func selects(q *corev1.ResourceQuota, pod *corev1.Pod, mayChangeClass bool) (bool, error) {
	isSelected := true
	for _, scope := range scopesOf(q) {
		isIn, isKnown := isInScope(scope, pod)
		switch {
		case !isKnown:
			return false, newUnknownRuleError("ResourceQuota %s has the scope %s", q.Name, scope.ScopeName)
		case mayChangeClass && (scope.ScopeName == corev1.ResourceQuotaScopeBestEffort ||
			scope.ScopeName == corev1.ResourceQuotaScopeNotBestEffort):
			return false, newUnknownRuleError("ResourceQuota %s has the scope %s, and the pod's containers are BestEffort "+
				"without a sidecar that has a size", q.Name, scope.ScopeName)
		}
		isSelected = isSelected && isIn
	}
	return isSelected, nil
}

// checkQuota checks that a quota has room for a pod.
func checkQuota(q *corev1.ResourceQuota, usage corev1.ResourceList) error {
	hard := hardOf(q)
	for _, name := range slices.Sorted(maps.Keys(usage)) {
		used := q.Status.Used[name]
		sum := sumOf(used, usage[name])
		if bound, set := hard[name]; set && sum.Cmp(bound) > 0 {
			return newFullError("ResourceQuota %s has too little left of %s (%s of %s are used)", q.Name, name, used.String(),
				bound.String())
		}
	}
	return nil
}

// hardOf are the bounds of a quota: of those in force and those in its spec, which its controller
// puts in force later, the lower ones.
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

// isInScope reports whether a pod is, or may be, in a scope of quotas, and whether the scope is
// known here.
func isInScope(r corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) (isIn, isKnown bool) {
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

// operators are the operators of scope selectors as those of label selectors.
var operators = map[corev1.ScopeSelectorOperator]selection.Operator{
	corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
	corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
}

// hasPriority reports whether a selector matches a priority class, as if that were a label. It
// matches if the selector is invalid.
func hasPriority(r corev1.ScopedResourceSelectorRequirement, class string) bool {
	const key = string(corev1.ResourceQuotaScopePriorityClass)
	var of labels.Set
	if class != "" {
		of = labels.Set{key: class}
	}
	requirement, err := labels.NewRequirement(key, operators[r.Operator], r.Values)
	return err != nil || requirement.Matches(of)
}
