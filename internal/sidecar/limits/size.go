package limits

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// What a sidecar has where it must have a limit and none is wanted; and what it needs to be ready
// in time if it has a limit.
var (
	usualLimit = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"),
		corev1.ResourceMemory: resource.MustParse("256Mi")}
	minLimit = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"),
		corev1.ResourceMemory: resource.MustParse("64Mi")}
)

// Size is that of a pod's sidecar, or a *RuleError if the pod cannot have one. isSaid says that the
// size was chosen for this pod, and not for all.
//
// The invariant: the pod keeps its QoS class, and the sidecar adds a known amount of CPU and memory
// to it and nothing of any other resource. So each rule of the namespace either holds as before or
// is one of the table in rules.go. A pod that is BestEffort gets a sidecar without a size, unless
// isSaid.
func (r *Rules) Size(pod *corev1.Pod, wanted corev1.ResourceRequirements, isSaid bool) (*Size, error) {
	setDefaults(pod)
	s := &Size{ResourceRequirements: corev1.ResourceRequirements{Requests: corev1.ResourceList{},
		Limits: corev1.ResourceList{}}}
	bestEffort := isBestEffort(pod, resourcehelper.PodResourcesOptions{})
	if !bestEffort || isSaid {
		pair := resourcehelper.IsPodLevelResourcesSet(pod) || isGuaranteed(pod)
		for _, name := range Computed {
			if err := s.setResource(name, wanted, pair || r.hasRuleFor(name), r); err != nil {
				return nil, err
			}
		}
	}
	if len(r.Ranges)+len(r.Quotas) > 0 {
		s.setZeros()
	}
	if bestEffort && s.isSized() {
		s.addNote("the pod is Burstable with its sidecar, whose size was said: it was BestEffort")
	}
	total := totalWith(pod, s)
	if err := r.applyRanges(s, total); err != nil {
		return nil, err
	}
	if s.isSized() {
		if err := r.checkQuotas(pod, total, isBestEffort(pod, byContainers)); err != nil {
			return nil, err
		}
	}
	s.raisePod(pod)
	return s, nil
}

// setResource gives a sidecar its part of a resource: what is wanted, or a pair of a request and a
// limit that are the same, as it has in pods and namespaces with rules.
func (s *Size) setResource(name corev1.ResourceName, wanted corev1.ResourceRequirements, pair bool,
	rules *Rules) error {
	request, requested := wanted.Requests[name]
	limit, limited := wanted.Limits[name]
	if !pair {
		if requested {
			s.Requests[name] = request
		}
		if limited {
			s.Limits[name] = limit
		}
		return nil
	}
	least, size := minLimit[name], limit
	if !limited {
		size = larger(usualLimit[name], request)
	} else if limit.Cmp(least) < 0 {
		least = limit
	}
	if allowed := rules.clamp(name, size); allowed.Cmp(size) != 0 {
		s.addNote("the sidecar has %s of %s instead of %s, because of a LimitRange", allowed.String(), name, size.String())
		size = allowed
	}
	if size.Cmp(least) < 0 {
		return newFullError("it would have %s of %s because of a LimitRange, and needs %s", size.String(), name,
			least.String())
	}
	s.HasUnwantedCPULimit = s.HasUnwantedCPULimit || name == corev1.ResourceCPU && !limited
	s.Requests[name], s.Limits[name] = size, size
	return nil
}

// setZeros sets 0 for resources that a sidecar does not have. Otherwise it would get a namespace's
// defaults. Containers with hugepages must have CPU or memory in their requests, even if it is 0.
func (s *Size) setZeros() {
	for _, name := range Computed {
		_, requested := s.Requests[name]
		_, limited := s.Limits[name]
		if !requested && !limited {
			s.Requests[name], s.Limits[name] = resource.Quantity{}, resource.Quantity{}
		}
	}
}

// raisePod adds a sidecar to what its pod asks for as a whole.
func (s *Size) raisePod(pod *corev1.Pod) {
	if !resourcehelper.IsPodLevelResourcesSet(pod) {
		return
	}
	s.Pod = pod.Spec.Resources.DeepCopy()
	for _, name := range Computed {
		for _, list := range []struct{ of, by corev1.ResourceList }{{s.Pod.Requests, s.Requests}, {s.Pod.Limits, s.Limits}} {
			if sum, set := list.of[name]; set {
				list.of[name] = sumOf(sum, list.by[name])
			}
		}
	}
}

func (s *Size) addNote(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}
