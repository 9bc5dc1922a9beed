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

// byContainers leaves out what a pod asks for as a whole, which kube-apiserver drops after its
// webhooks where the feature PodLevelResources is off.
var byContainers = resourcehelper.PodResourcesOptions{SkipPodLevelResources: true}

// isBestEffort reports that a pod asks for no CPU and no memory.
func isBestEffort(pod *corev1.Pod, o resourcehelper.PodResourcesOptions) bool {
	o.ExcludeOverhead = true
	return !hasSize(corev1.ResourceRequirements{Requests: resourcehelper.PodRequests(pod, o),
		Limits: resourcehelper.PodLimits(pod, o)})
}

// Size is what a sidecar asks for.
type Size struct {
	corev1.ResourceRequirements
	Pod   *corev1.ResourceRequirements // what the pod as a whole asks for with it; nil: it does not say
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

// totalWith is the most that a pod has of CPU and memory with a sidecar, wherever it is among the
// init containers: a sidecar adds no more than its own size.
func totalWith(pod *corev1.Pod, s *Size) corev1.ResourceRequirements {
	total := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, name := range Computed {
		var request, limit resource.Quantity
		for _, o := range []resourcehelper.PodResourcesOptions{{}, byContainers} {
			request = larger(request, resourcehelper.PodRequests(pod, o)[name])
			limit = larger(limit, resourcehelper.PodLimits(pod, o)[name])
		}
		if resourcehelper.IsPodLevelResourcesSet(pod) { // what it requests as a whole may become its limit
			limit = larger(limit, request)
		}
		total.Requests[name], total.Limits[name] = sumOf(request, s.Requests[name]), sumOf(limit, s.Limits[name])
	}
	return total
}

// usageOf is what a pod has by the names of quotas.
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
