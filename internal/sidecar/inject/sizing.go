package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// sidecarSize is what a sidecar asks for, and what the pod as a whole asks for then; nil if it does
// not say.
type sidecarSize struct {
	corev1.ResourceRequirements
	pod   *corev1.ResourceRequirements
	notes []string
}

// What a sidecar has where it must have a limit and none is wanted; and what it needs to be ready
// in time if it has a limit.
var (
	usualLimit = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"),
		corev1.ResourceMemory: resource.MustParse("256Mi")}
	minLimit = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"),
		corev1.ResourceMemory: resource.MustParse("64Mi")}
)

// size is the sidecar's, or a *LeftError if the pod cannot have one.
//
// The invariant: the pod keeps its QoS class, and the sidecar adds a known amount of CPU and memory
// to it and nothing of any other resource. So each rule of the namespace either holds as before or
// is one of the table in limits.go. A pod that is BestEffort gets a sidecar without a size, unless
// a size was said for it: by an annotation, or as a limit.
func (o Options) size(t *Template) (*sidecarSize, error) {
	pod, err := resourcesOf(t)
	if err != nil {
		return nil, err
	}
	whole := resourcehelper.IsPodLevelResourcesSet(pod)
	if whole && !o.Admitted {
		return nil, &LeftError{"says what it asks for as a whole (spec.resources), which the sidecar would share: have the " +
			"webhook inject it, which raises that", true}
	}
	limits := o.Limits
	if limits == nil {
		limits = &NamespaceLimits{}
	}
	s := &sidecarSize{ResourceRequirements: corev1.ResourceRequirements{Requests: corev1.ResourceList{},
		Limits: corev1.ResourceList{}}}
	bestEffort := isBestEffort(pod)
	if !bestEffort || o.saysSize(t) {
		pair := whole || isGuaranteed(pod)
		for _, name := range computed {
			if err := s.set(name, o.requirements(), pair || limits.mentions(name), limits); err != nil {
				return nil, err
			}
		}
	}
	if !limits.isEmpty() {
		s.sayZeros()
	}
	if bestEffort && s.isSized() {
		s.note("the pod is Burstable with its sidecar, whose size was said: it was BestEffort")
	}
	total := totalWith(pod, s)
	if err := limits.apply(s, total); err != nil {
		return nil, err
	}
	if s.isSized() {
		if err := limits.checkQuotas(pod, total, isBestEffort(byContainers(pod))); err != nil {
			return nil, err
		}
	}
	s.raise(pod)
	return s, nil
}

// saysSize reports that a size was said for a template.
func (o Options) saysSize(t *Template) bool {
	return o.CPULimit != "" || o.MemoryLimit != "" ||
		slices.ContainsFunc([]string{CPURequestAnnotation, MemoryRequestAnnotation}, func(name string) bool {
			return t.Annotations[name] != ""
		})
}

// set gives a sidecar its part of a resource: what is wanted, or a pair of a request and a limit
// that are the same, as it has in pods and namespaces with rules.
func (s *sidecarSize) set(name corev1.ResourceName, wanted corev1.ResourceRequirements, pair bool,
	limits *NamespaceLimits) error {
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
	if allowed := limits.within(name, size); allowed.Cmp(size) != 0 {
		s.note("the sidecar has %s of %s instead of %s, because of a LimitRange", allowed.String(), name, size.String())
		size = allowed
	}
	if size.Cmp(least) < 0 {
		return noRoom("it would have %s of %s because of a LimitRange, and needs %s", size.String(), name, least.String())
	}
	if name == corev1.ResourceCPU && !limited {
		s.note("the sidecar has a CPU limit of %s, because of its namespace or its pod, and holds up events when it "+
			"reaches that: say %s to choose it", size.String(), CPULimitAnnotation)
	}
	s.Requests[name], s.Limits[name] = size, size
	return nil
}

// sayZeros sets 0 for resources that a sidecar does not have. Otherwise it would get a namespace's
// defaults. Containers with hugepages must have CPU or memory in their requests, even if it is 0.
func (s *sidecarSize) sayZeros() {
	for _, name := range computed {
		_, requested := s.Requests[name]
		_, limited := s.Limits[name]
		if !requested && !limited {
			s.Requests[name], s.Limits[name] = resource.Quantity{}, resource.Quantity{}
		}
	}
}

// isSized reports that a sidecar has some CPU or memory.
func (s *sidecarSize) isSized() bool { return hasSize(s.ResourceRequirements) }

// raise adds a sidecar to what its pod asks for as a whole.
func (s *sidecarSize) raise(pod *corev1.Pod) {
	if !resourcehelper.IsPodLevelResourcesSet(pod) {
		return
	}
	s.pod = pod.Spec.Resources.DeepCopy()
	for _, name := range computed {
		for _, list := range []struct{ of, by corev1.ResourceList }{{s.pod.Requests, s.Requests}, {s.pod.Limits, s.Limits}} {
			if sum, set := list.of[name]; set {
				list.of[name] = sumOf(sum, list.by[name])
			}
		}
	}
}

func (s *sidecarSize) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}
