package limits

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Computed are the resources that decide a pod's QoS class, and of which a sidecar's size consists.
var Computed = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// setDefaults sets the requests that the API server would set because of limits.
func setDefaults(pod *corev1.Pod) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			fillMissing(containers[i].Resources.Requests, containers[i].Resources.Limits)
		}
	}
	if pod.Spec.Resources != nil {
		fillPodLevel(pod)
	}
}

func fillMissing(list, defaults corev1.ResourceList) {
	for name, q := range defaults {
		if _, set := list[name]; !set {
			list[name] = q
		}
	}
}

// fillPodLevel sets the missing requests of a pod as a whole for which it has limits as a whole.
// kube-apiserver does that from 1.37 on, but after its webhooks. It could then take the request of
// the sidecar for that of the whole pod.
func fillPodLevel(pod *corev1.Pod) {
	all := pod.Spec.Resources
	sum := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range Computed {
		limit, limited := all.Limits[name]
		_, requested := all.Requests[name]
		switch q, summed := sum[name]; {
		case requested || !limited:
		case summed:
			all.Requests[name] = q
		default:
			all.Requests[name] = limit
		}
	}
}

// byContainers ignores what a pod requests as a whole. kube-apiserver drops that after its webhooks
// if the feature PodLevelResources is off.
var byContainers = resourcehelper.PodResourcesOptions{SkipPodLevelResources: true}

// isBestEffort reports that a pod has no requests and limits of CPU and memory.
func isBestEffort(pod *corev1.Pod, o resourcehelper.PodResourcesOptions) bool {
	o.ExcludeOverhead = true
	return !hasSize(corev1.ResourceRequirements{Requests: resourcehelper.PodRequests(pod, o),
		Limits: resourcehelper.PodLimits(pod, o)})
}

// Size is the requests and limits of a sidecar.
type Size struct {
	corev1.ResourceRequirements
	Pod   *corev1.ResourceRequirements // of the pod as a whole, with the sidecar; nil: it has none
	Notes []string
	// HasUnwantedCPULimit says that the namespace or the pod makes a limit of CPU necessary.
	HasUnwantedCPULimit bool
}

// isSized reports that a sidecar has some CPU or memory.
func (s *Size) isSized() bool { return hasSize(s.ResourceRequirements) }

// hasSize reports that there is some CPU or memory.
func hasSize(r corev1.ResourceRequirements) bool {
	return slices.ContainsFunc(Computed, func(name corev1.ResourceName) bool {
		request, limit := r.Requests[name], r.Limits[name]
		return !request.IsZero() || !limit.IsZero()
	})
}

// isGuaranteed reports that each container of a pod has limits that are its requests.
func isGuaranteed(pod *corev1.Pod) bool {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	return !slices.ContainsFunc(all, func(c corev1.Container) bool {
		return slices.ContainsFunc(Computed, func(name corev1.ResourceName) bool {
			request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
			return limit.IsZero() || request.Cmp(limit) != 0
		})
	})
}

// totalWith is the most CPU and memory that a pod has with a sidecar, wherever that is among the
// init containers: it adds no more than its own size.
func totalWith(pod *corev1.Pod, sidecar corev1.ResourceRequirements) corev1.ResourceRequirements {
	total := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, name := range Computed {
		var request, limit resource.Quantity
		for _, o := range []resourcehelper.PodResourcesOptions{{}, byContainers} {
			request = larger(request, resourcehelper.PodRequests(pod, o)[name])
			limit = larger(limit, resourcehelper.PodLimits(pod, o)[name])
		}
		if resourcehelper.IsPodLevelResourcesSet(pod) { // its request as a whole may become its limit
			limit = larger(limit, request)
		}
		total.Requests[name], total.Limits[name] = sumOf(request, sidecar.Requests[name]), sumOf(limit, sidecar.Limits[name])
	}
	return total
}

// usageOf is what a pod has, by the names that quotas use.
func usageOf(total corev1.ResourceRequirements) corev1.ResourceList {
	all := corev1.ResourceList{}
	for _, name := range Computed {
		all[name], all["requests."+name], all["limits."+name] = total.Requests[name], total.Requests[name], total.Limits[name]
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
