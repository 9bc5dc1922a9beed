package inject

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// computed are the resources that a pod's class of service is about, and a sidecar's size.
var computed = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// resourcesOf is of a template what it asks for, as a pod with nothing else.
func resourcesOf(t *Template) (*corev1.Pod, error) {
	spec := &t.Spec
	pod := &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: spec.ActiveDeadlineSeconds,
		PriorityClassName: spec.PriorityClassName}}
	var err error
	if pod.Spec.Overhead, err = spec.Overhead.list(); err != nil {
		return nil, err
	}
	if spec.Resources != nil {
		all, err := spec.Resources.parse()
		if err != nil {
			return nil, err
		}
		pod.Spec.Resources = &all
	}
	for _, part := range []struct {
		from []PodContainer
		to   *[]corev1.Container
	}{{spec.InitContainers, &pod.Spec.InitContainers}, {spec.Containers, &pod.Spec.Containers}} {
		for _, from := range part.from {
			c := corev1.Container{Name: from.Name}
			if from.RestartPolicy != "" {
				c.RestartPolicy = ptr.To(from.RestartPolicy)
			}
			if c.Resources, err = from.Resources.parse(); err != nil {
				return nil, err
			}
			fill(c.Resources.Requests, c.Resources.Limits) // as the API server does
			*part.to = append(*part.to, c)
		}
	}
	return pod, nil
}

// podRequests is what a pod asks for, without its overhead.
func podRequests(pod *corev1.Pod) corev1.ResourceList {
	sum := sumOf(pod, requestsOf)
	if hasPodLevel(pod) {
		override(sum, pod.Spec.Resources.Requests)
	}
	return sum
}

// podLimits is what a pod may use at most, as far as that is said.
func podLimits(pod *corev1.Pod) corev1.ResourceList {
	sum := sumOf(pod, limitsOf)
	if hasPodLevel(pod) {
		override(sum, pod.Spec.Resources.Limits)
	}
	return sum
}

// sumOf is what all containers have at the same time at most: sidecars among the init containers
// count as long as the pod runs, the others while they run.
func sumOf(pod *corev1.Pod, of func(*corev1.Container) corev1.ResourceList) corev1.ResourceList {
	sum, sidecars, most := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range pod.Spec.Containers {
		addAll(sum, of(&pod.Spec.Containers[i]))
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			addAll(sum, of(c))
			addAll(sidecars, of(c))
			maxAll(most, sidecars)
			continue
		}
		now := sidecars.DeepCopy()
		addAll(now, of(c))
		maxAll(most, now)
	}
	maxAll(sum, most)
	return sum
}

func addAll(to, from corev1.ResourceList) {
	for name, q := range from {
		sum := to[name].DeepCopy()
		sum.Add(q)
		to[name] = sum
	}
}

func maxAll(to, from corev1.ResourceList) {
	for name, q := range from {
		if now, set := to[name]; !set || q.Cmp(now) > 0 {
			to[name] = q.DeepCopy()
		}
	}
}

func override(to, from corev1.ResourceList) {
	maps.Copy(to, only(computed, from))
}

// hasPodLevel reports that a pod says what it asks for as a whole.
func hasPodLevel(pod *corev1.Pod) bool {
	return pod.Spec.Resources != nil && len(pod.Spec.Resources.Requests)+len(pod.Spec.Resources.Limits) > 0
}

// podLevel is what a pod asks for as a whole once kube-apiserver has filled in what it does not
// say, which newer ones do after all webhooks.
func podLevel(pod *corev1.Pod) *corev1.ResourceRequirements {
	all := pod.Spec.Resources.DeepCopy()
	if all.Requests == nil {
		all.Requests = corev1.ResourceList{}
	}
	if all.Limits == nil {
		all.Limits = corev1.ResourceList{}
	}
	fill(all.Requests, only(computed, sumOf(pod, requestsOf)))
	fill(all.Requests, only(computed, all.Limits))
	limits := sumOf(pod, limitsOf)
	for _, name := range computed {
		request, asked := all.Requests[name]
		if _, said := all.Limits[name]; asked && !said && everyContainerLimits(pod, name) {
			limit := limits[name]
			if limit.Cmp(request) < 0 {
				limit = request
			}
			all.Limits[name] = limit
		}
	}
	return all
}

func requestsOf(c *corev1.Container) corev1.ResourceList { return c.Resources.Requests }
func limitsOf(c *corev1.Container) corev1.ResourceList   { return c.Resources.Limits }

func everyContainerLimits(pod *corev1.Pod, name corev1.ResourceName) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if _, set := c.Resources.Limits[name]; !set {
			return false
		}
	}
	return true
}

func only(names []corev1.ResourceName, list corev1.ResourceList) corev1.ResourceList {
	some := corev1.ResourceList{}
	for _, name := range names {
		if q, set := list[name]; set {
			some[name] = q
		}
	}
	return some
}

// qosOf is a pod's class of service, as ComputePodQOS of Kubernetes finds it.
func qosOf(pod *corev1.Pod) corev1.PodQOSClass {
	if hasPodLevel(pod) {
		return qosOfOne(podLevel(pod))
	}
	var class corev1.PodQOSClass
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			next := qosOfOne(&list[i].Resources)
			if next == corev1.PodQOSBurstable || class != "" && next != class {
				return corev1.PodQOSBurstable
			}
			class = next
		}
	}
	return class
}

func qosOfOne(r *corev1.ResourceRequirements) corev1.PodQOSClass {
	var class corev1.PodQOSClass
	for _, name := range computed {
		request, limit := r.Requests[name], r.Limits[name]
		next := corev1.PodQOSGuaranteed
		switch {
		case request.Cmp(limit) != 0:
			return corev1.PodQOSBurstable
		case request.IsZero():
			next = corev1.PodQOSBestEffort
		}
		if class != "" && next != class {
			return corev1.PodQOSBurstable
		}
		class = next
	}
	return class
}

// shapeBreaches are what validation of pods has against their resources: requests above limits, and
// a pod's sum below its containers'.
func shapeBreaches(pod *corev1.Pod) (all []violation) {
	check := func(of string, r *corev1.ResourceRequirements) {
		for name, limit := range r.Limits {
			if request := r.Requests[name]; request.Cmp(limit) > 0 {
				rule := of + " would ask for more " + string(name) + " than its limit"
				all = append(all, violation{rule, rule + ", " + quantityText(limit)})
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		check("container "+pod.Spec.InitContainers[i].Name, &pod.Spec.InitContainers[i].Resources)
	}
	if hasPodLevel(pod) {
		check("the pod", pod.Spec.Resources)
		sum := sumOf(pod, requestsOf)
		for name, bound := range pod.Spec.Resources.Requests {
			if q := sum[name]; q.Cmp(bound) > 0 {
				rule := "spec.resources.requests has too little " + string(name) + " for all containers"
				all = append(all, violation{rule, rule + ", " + quantityText(bound)})
			}
		}
	}
	return all
}

func quantityText(q resource.Quantity) string { return q.String() }
