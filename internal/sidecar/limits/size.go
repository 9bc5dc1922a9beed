package limits

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// usualLimit is the size of a sidecar that must have a limit, and for which none is wanted.
var usualLimit = corev1.ResourceList{
	corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("256Mi"),
}

// minLimit is the lowest limit with which a sidecar is ready in time.
var minLimit = corev1.ResourceList{
	corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
}

// Size returns the size of a pod's sidecar, or a *RuleError if the pod cannot have one. isChosen
// says that the wanted size was chosen for this pod, and not for all.
//
// Invariant: the pod keeps its QoS class, and the sidecar adds a known amount of CPU and memory to
// it and nothing of any other resource. So each rule of the namespace either holds as before, or is
// in the table of Rules. The sidecar of a BestEffort pod has no size, unless isChosen.
func (r *Rules) Size(pod *corev1.Pod, wanted corev1.ResourceRequirements, isChosen bool) (*Size, error) {
	setDefaults(pod)
	s := &Size{ResourceRequirements: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{},
	}}
	bestEffort := isBestEffort(pod, resourcehelper.PodResourcesOptions{})
	if !bestEffort || isChosen {
		needsLimits := resourcehelper.IsPodLevelResourcesSet(pod) || isGuaranteed(pod)
		for _, name := range Computed {
			if !needsLimits && !r.hasRuleFor(name) {
				s.setWanted(name, wanted)
			} else if err := s.setEqual(name, wanted, r); err != nil {
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
	total := totalWith(pod, s.ResourceRequirements)
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

// setWanted sets the request and the limit that are wanted of a resource.
func (s *Size) setWanted(name corev1.ResourceName, wanted corev1.ResourceRequirements) {
	if request, set := wanted.Requests[name]; set {
		s.Requests[name] = request
	}
	if limit, set := wanted.Limits[name]; set {
		s.Limits[name] = limit
	}
}

// setEqual sets a request and a limit of a resource that are the same, as Guaranteed pods and rules
// need them: what is wanted, within the LimitRanges.
func (s *Size) setEqual(name corev1.ResourceName, wanted corev1.ResourceRequirements, rules *Rules) error {
	size, isLimited := wanted.Limits[name]
	least := minLimit[name]
	if !isLimited {
		size = larger(usualLimit[name], wanted.Requests[name])
	} else if size.Cmp(least) < 0 {
		least = size
	}
	if allowed := rules.clamp(name, size); allowed.Cmp(size) != 0 {
		s.addNote("the sidecar has %s of %s instead of %s, because of a LimitRange", allowed.String(), name, size.String())
		size = allowed
	}
	if size.Cmp(least) < 0 {
		return newFullError("it would have %s of %s because of a LimitRange, and needs %s", size.String(), name,
			least.String())
	}
	s.HasUnwantedCPULimit = s.HasUnwantedCPULimit || name == corev1.ResourceCPU && !isLimited
	s.Requests[name], s.Limits[name] = size, size
	return nil
}

// setZeros sets 0 for resources that a sidecar does not have, because it would get a namespace's
// defaults otherwise. Containers with hugepages must request CPU or memory, even if that is 0.
func (s *Size) setZeros() {
	for _, name := range Computed {
		_, requested := s.Requests[name]
		_, limited := s.Limits[name]
		if !requested && !limited {
			s.Requests[name], s.Limits[name] = resource.Quantity{}, resource.Quantity{}
		}
	}
}

// raisePod adds a sidecar to what its pod requests as a whole.
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
