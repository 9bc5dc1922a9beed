package limits

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Computed are the resources that a pod's QoS class is about, and a sidecar's size.
var Computed = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// setDefaults has a pod ask for what the API server would have it ask for.
func setDefaults(pod *corev1.Pod) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			fill(containers[i].Resources.Requests, containers[i].Resources.Limits)
		}
	}
	if pod.Spec.Resources != nil {
		fillPodLevel(pod)
	}
}

func fill(list, defaults corev1.ResourceList) {
	for name, q := range defaults {
		if _, set := list[name]; !set {
			list[name] = q
		}
	}
}

// fillPodLevel says what a pod requests as a whole of what it limits as a whole. kube-apiserver
// does that from 1.37 on after its webhooks, when it would follow from the sidecar alone.
func fillPodLevel(pod *corev1.Pod) {
	all := pod.Spec.Resources
	sum := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range Computed {
		limit, limited := all.Limits[name]
		_, asked := all.Requests[name]
		switch q, summed := sum[name]; {
		case asked || !limited:
		case summed:
			all.Requests[name] = q
		default:
			all.Requests[name] = limit
		}
	}
}

// isBestEffort reports that a pod asks for no CPU and no memory.
func isBestEffort(pod *corev1.Pod) bool { return !slices.ContainsFunc(requirementsOf(pod), hasSize) }

// byContainers is a pod without what it asks for as a whole, which kube-apiserver drops where the
// feature PodLevelResources is off, after its webhooks.
func byContainers(pod *corev1.Pod) *corev1.Pod {
	without := &corev1.Pod{Spec: pod.Spec}
	without.Spec.Resources = nil
	return without
}

// hasSize reports that there is some CPU or memory.
func hasSize(r corev1.ResourceRequirements) bool {
	return slices.ContainsFunc(Computed, func(name corev1.ResourceName) bool {
		request, limit := r.Requests[name], r.Limits[name]
		return !request.IsZero() || !limit.IsZero()
	})
}

// isGuaranteed reports that each container of a pod has limits that are its requests.
func isGuaranteed(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(requirementsOf(pod), func(r corev1.ResourceRequirements) bool {
		return slices.ContainsFunc(Computed, func(name corev1.ResourceName) bool {
			request, limit := r.Requests[name], r.Limits[name]
			return limit.IsZero() || request.Cmp(limit) != 0
		})
	})
}

// requirementsOf are those of all containers, and of the pod as a whole if it has some.
func requirementsOf(pod *corev1.Pod) (all []corev1.ResourceRequirements) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		all = append(all, c.Resources)
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		all = append(all, *pod.Spec.Resources)
	}
	return all
}

// podTotal is what a pod has of CPU and memory as a whole at most.
type podTotal struct{ requests, limits corev1.ResourceList }

// totalWith is the most that a pod has with a sidecar in any place among the init containers: a
// sidecar adds no more than its own size.
func totalWith(pod *corev1.Pod, s *Size) podTotal {
	o := resourcehelper.PodResourcesOptions{}
	total := podTotal{corev1.ResourceList{}, corev1.ResourceList{}}
	for _, name := range Computed {
		request := larger(resourcehelper.PodRequests(pod, o)[name], resourcehelper.PodRequests(byContainers(pod), o)[name])
		limit := larger(resourcehelper.PodLimits(pod, o)[name], resourcehelper.PodLimits(byContainers(pod), o)[name])
		if resourcehelper.IsPodLevelResourcesSet(pod) { // what it requests as a whole may become its limit
			limit = larger(limit, request)
		}
		total.requests[name], total.limits[name] = sumOf(request, s.Requests[name]), sumOf(limit, s.Limits[name])
	}
	return total
}

// usage is what a pod has by the names of quotas.
func (t podTotal) usage() corev1.ResourceList {
	all := corev1.ResourceList{}
	for _, name := range Computed {
		all[name], all["requests."+name], all["limits."+name] = t.requests[name], t.requests[name], t.limits[name]
	}
	return all
}

func sumOf(a, b resource.Quantity) resource.Quantity {
	sum := a.DeepCopy()
	sum.Add(b)
	return sum
}

func larger(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}
