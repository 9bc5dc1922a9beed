package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// NamespaceLimits is what a namespace allows its pods: the rules by which kube-apiserver refuses
// pods after its webhooks. LimitRanger gives the sidecar defaults first, then checks it;
// ResourceQuota comes last.
type NamespaceLimits struct {
	Ranges []*corev1.LimitRange
	Quotas []*corev1.ResourceQuota
}

// violation is a rule that a pod does not keep. Two breaches with the same rule are the same one,
// whatever the numbers.
type violation struct{ rule, why string }

// setDefaults does to a container what LimitRanger does to one that it sees for the first time.
func (l *NamespaceLimits) setDefaults(c *corev1.Container) {
	r := &c.Resources
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	if r.Limits == nil {
		r.Limits = corev1.ResourceList{}
	}
	for _, item := range l.items(corev1.LimitTypeContainer) {
		fill(r.Limits, item.Default)
		fill(r.Requests, item.DefaultRequest)
	}
}

func fill(list, defaults corev1.ResourceList) {
	for name, q := range defaults {
		if _, set := list[name]; !set {
			list[name] = q
		}
	}
}

// rangeItem is one limit of a LimitRange.
type rangeItem struct {
	corev1.LimitRangeItem
	of string
}

func (l *NamespaceLimits) items(kind corev1.LimitType) (all []rangeItem) {
	for _, r := range l.Ranges {
		for _, item := range r.Spec.Limits {
			if item.Type == kind {
				all = append(all, rangeItem{item, r.Name})
			}
		}
	}
	return all
}

// breaches are the rules of the namespace that a pod does not keep.
func (l *NamespaceLimits) breaches(pod *corev1.Pod) (all []violation) {
	for _, item := range l.items(corev1.LimitTypeContainer) {
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			all = append(all, item.breaches("container "+c.Name, c.Resources.Requests, c.Resources.Limits)...)
		}
	}
	requests, limits := podRequests(pod), podLimits(pod)
	for _, item := range l.items(corev1.LimitTypePod) {
		all = append(all, item.breaches("the pod", requests, limits)...)
	}
	addAll(requests, pod.Spec.Overhead)
	for name, q := range pod.Spec.Overhead {
		if limit, set := limits[name]; set && !limit.IsZero() {
			limit.Add(q)
			limits[name] = limit
		}
	}
	for _, q := range l.Quotas {
		if matches(q, pod) {
			all = append(all, quotaBreaches(q, pod, requests, limits)...)
		}
	}
	return all
}

// breaches are those of min, max and maxLimitRequestRatio, as LimitRanger finds them.
func (i rangeItem) breaches(of string, requests, limits corev1.ResourceList) (all []violation) {
	say := func(what string, name corev1.ResourceName, q resource.Quantity) {
		rule := fmt.Sprintf("LimitRange %s: %s of %s per %s", i.of, what, name, i.Type)
		all = append(all, violation{rule + " for " + of, fmt.Sprintf("%s is %s", rule, q.String())})
	}
	for name, bound := range i.Min {
		request, asked := requests[name]
		limit, limited := limits[name]
		if !asked || request.Cmp(bound) < 0 || limited && limit.Cmp(bound) < 0 {
			say("min", name, bound)
		}
	}
	for name, bound := range i.Max {
		request, asked := requests[name]
		limit, limited := limits[name]
		if !limited || limit.Cmp(bound) > 0 || asked && request.Cmp(bound) > 0 {
			say("max", name, bound)
		}
	}
	for name, bound := range i.MaxLimitRequestRatio {
		request, limit := requests[name], limits[name]
		if request.IsZero() || limit.IsZero() ||
			limit.AsApproximateFloat64()/request.AsApproximateFloat64() > bound.AsApproximateFloat64() {
			say("maxLimitRequestRatio", name, bound)
		}
	}
	return all
}

// everyContainersQuota are the resources of a quota of which each container has to say how much it
// asks for.
var everyContainersQuota = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
}

// quotaBreaches are what a quota has against a pod of these sums.
func quotaBreaches(q *corev1.ResourceQuota, pod *corev1.Pod, requests, limits corev1.ResourceList) (all []violation) {
	hard := hardOf(q)
	for name, bound := range hard {
		if slices.Contains(everyContainersQuota, name) && !hasPodLevel(pod) {
			for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				if _, said := usage(c.Resources.Requests, c.Resources.Limits)[name]; !said {
					rule := fmt.Sprintf("ResourceQuota %s wants %s", q.Name, name)
					all = append(all, violation{rule + " for " + c.Name, rule + " to be said for every container"})
				}
			}
		}
		uses, counted := usage(requests, limits)[name]
		if !counted || uses.Sign() <= 0 {
			continue
		}
		uses.Add(q.Status.Used[name])
		if uses.Cmp(bound) > 0 {
			rule := fmt.Sprintf("ResourceQuota %s has too little left of %s", q.Name, name)
			used := q.Status.Used[name]
			all = append(all, violation{rule, fmt.Sprintf("%s (%s of %s are used)", rule, used.String(), bound.String())})
		}
	}
	return all
}

// hardOf are the bounds of a quota: what its controller has acknowledged, and what it will.
func hardOf(q *corev1.ResourceQuota) corev1.ResourceList {
	hard := q.Spec.Hard.DeepCopy()
	if hard == nil {
		hard = corev1.ResourceList{}
	}
	for name, bound := range q.Status.Hard {
		if other, set := hard[name]; !set || bound.Cmp(other) < 0 {
			hard[name] = bound
		}
	}
	return hard
}

// usage is what sums are called in a quota.
func usage(requests, limits corev1.ResourceList) corev1.ResourceList {
	all := corev1.ResourceList{}
	for name, q := range requests {
		all["requests."+name] = q
		all[name] = q
	}
	for name, q := range limits {
		all["limits."+name] = q
	}
	return all
}

// matches reports that a pod is counted by a quota. In doubt it is.
func matches(q *corev1.ResourceQuota, pod *corev1.Pod) bool {
	for _, scope := range q.Spec.Scopes {
		if !inScope(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, pod) {
			return false
		}
	}
	if s := q.Spec.ScopeSelector; s != nil {
		for _, r := range s.MatchExpressions {
			if !inScope(r, pod) {
				return false
			}
		}
	}
	return true
}

func inScope(r corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	deadline := pod.Spec.ActiveDeadlineSeconds
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return deadline != nil && *deadline >= 0
	case corev1.ResourceQuotaScopeNotTerminating:
		return deadline == nil || *deadline < 0
	case corev1.ResourceQuotaScopeBestEffort:
		return qosOf(pod) == corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return qosOf(pod) != corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopePriorityClass:
		class := pod.Spec.PriorityClassName
		switch r.Operator {
		case corev1.ScopeSelectorOpExists:
			return class != ""
		case corev1.ScopeSelectorOpDoesNotExist:
			return class == ""
		case corev1.ScopeSelectorOpIn:
			return slices.Contains(r.Values, class)
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(r.Values, class)
		}
	}
	return true
}
