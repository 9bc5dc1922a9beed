package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// sidecarSize is what a sidecar asks for, and what the pod as a whole asks for then; nil if it does
// not say.
type sidecarSize struct {
	corev1.ResourceRequirements
	pod *corev1.ResourceRequirements
}

// sizing finds the largest sidecar, up to what is wanted, that a pod can have. The invariant is in
// fits: what is chosen keeps every rule that the pod keeps without it. How candidates are made
// decides only how large the sidecar is.
type sizing struct {
	pod    *corev1.Pod // without it
	at     int         // its place among the init containers
	limits *NamespaceLimits
	wanted corev1.ResourceRequirements
	qos    corev1.PodQOSClass
	before []violation // of the pod without it
}

// least and usual are limits of sidecars. With less than the least, one that has a limit does not
// become ready in time; the usual is what one is given where it must have a limit and none is
// wanted. In a pod that is Guaranteed, it is set aside as a whole.
var (
	minRequest = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"),
		corev1.ResourceMemory: resource.MustParse("64Mi")}
	minLimit = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"),
		corev1.ResourceMemory: resource.MustParse("64Mi")}
	usualLimit = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"),
		corev1.ResourceMemory: resource.MustParse("256Mi")}
	asideLimit = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"),
		corev1.ResourceMemory: resource.MustParse("256Mi")}
)

// steps is in how many steps a size goes from what is wanted to the least.
const steps = 4

// size is the sidecar's, or why there is none that fits.
func (o Options) size(t *Template, at int) (*sidecarSize, error) {
	pod, err := resourcesOf(t)
	if err != nil {
		return nil, err
	}
	if hasPodLevel(pod) && !o.Admitted {
		return nil, &LeftError{"says what it asks for as a whole (spec.resources), which the sidecar would share: have the " +
			"webhook inject it, which raises that", true}
	}
	s := &sizing{pod: pod, at: at, limits: o.Limits, wanted: o.requirements(), qos: qosOf(pod)}
	if s.limits == nil {
		s.limits = &NamespaceLimits{}
	}
	s.before = s.breaches(pod)
	var against []violation
	for sum := range 2*steps + 1 { // the largest first
		for cpu := max(0, sum-steps); cpu <= min(sum, steps); cpu++ {
			candidate := s.candidate(map[corev1.ResourceName]int64{corev1.ResourceCPU: int64(cpu),
				corev1.ResourceMemory: int64(sum - cpu)})
			if against = s.against(candidate); len(against) == 0 {
				return candidate, nil
			}
		}
	}
	return nil, &LeftError{"there is no room for a sidecar: " + explain(against) + "; raise that, or ask for less by " +
		MemoryRequestAnnotation + " and the like", true}
}

func explain(all []violation) string {
	texts := map[string]bool{}
	for _, b := range all {
		texts[b.why] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(texts)), ", ")
}

func (s *sizing) breaches(pod *corev1.Pod) []violation {
	return append(s.limits.breaches(pod), shapeBreaches(pod)...)
}

// against is what there is against a candidate: rules that the pod keeps without it.
func (s *sizing) against(c *sidecarSize) []violation {
	pod := &corev1.Pod{Spec: s.pod.Spec} // what it shares with s.pod is not changed
	sidecar := corev1.Container{Name: Container, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		Resources: *c.ResourceRequirements.DeepCopy()}
	s.limits.setDefaults(&sidecar)
	pod.Spec.InitContainers = slices.Insert(slices.Clone(pod.Spec.InitContainers), s.at, sidecar)
	pod.Spec.Resources = c.pod
	all := slices.DeleteFunc(s.breaches(pod), func(b violation) bool {
		return slices.ContainsFunc(s.before, func(had violation) bool { return had.rule == b.rule })
	})
	if s.qos == corev1.PodQOSGuaranteed && qosOf(pod) != s.qos {
		all = append(all, violation{"qos", "the pod would no longer be Guaranteed"})
	}
	for _, name := range computed {
		least := minLimit[name]
		if wanted, set := s.wanted.Limits[name]; set && wanted.Cmp(least) < 0 {
			least = wanted
		}
		if limit, set := sidecar.Resources.Limits[name]; set && limit.Cmp(least) < 0 {
			why := fmt.Sprintf("a sidecar with a limit of %s of %s is too small, at least %s are needed",
				limit.String(), name, least.String())
			if from := s.limits.bounds(name).of; from != "" {
				why += " (" + from + ")"
			}
			all = append(all, violation{"least " + string(name), why})
		}
	}
	return all
}

// candidate is the size after some steps from what is wanted towards the least.
func (s *sizing) candidate(step map[corev1.ResourceName]int64) *sidecarSize {
	c := &sidecarSize{ResourceRequirements: corev1.ResourceRequirements{Requests: corev1.ResourceList{},
		Limits: corev1.ResourceList{}}}
	if hasPodLevel(s.pod) {
		// What is not said, but follows from a limit, has to be said now: it would follow from the
		// sidecar alone.
		c.pod = s.pod.Spec.Resources.DeepCopy()
		if c.pod.Requests == nil {
			c.pod.Requests = corev1.ResourceList{}
		}
		all := podLevel(s.pod).Requests
		for _, name := range computed {
			if _, limited := c.pod.Limits[name]; limited {
				c.pod.Requests[name] = all[name]
			}
		}
	}
	for _, name := range computed {
		request, limit := s.amounts(name, step[name])
		set := func(list corev1.ResourceList, value int64) {
			if value > 0 {
				list[name] = quantityOf(name, value)
			}
		}
		set(c.Requests, request)
		set(c.Limits, limit)
		if c.pod != nil {
			grow(c.pod.Requests, c.Requests, name)
			grow(c.pod.Limits, c.Limits, name)
		}
	}
	return c
}

// grow adds what a sidecar has of a resource to what its pod says as a whole.
func grow(pod, sidecar corev1.ResourceList, name corev1.ResourceName) {
	if sum, set := pod[name]; set {
		sum.Add(sidecar[name])
		pod[name] = sum
	}
}

// amounts are what a candidate asks for of a resource, and its limit, 0 if there is none, in units
// of value.
func (s *sizing) amounts(name corev1.ResourceName, step int64) (request, limit int64) {
	b := s.limits.bounds(name)
	request = between(value(name, s.wanted.Requests), value(name, minRequest), step)
	guaranteed := s.qos == corev1.PodQOSGuaranteed
	usual := usualLimit
	if guaranteed {
		usual = asideLimit
	}
	limit = value(name, s.wanted.Limits)
	if limit == 0 && (guaranteed || b.limited || s.limits.wants(name, "limits.") || s.podHasLimit(name)) {
		limit = max(value(name, usual), b.usual, request)
	}
	limit = between(limit, value(name, minLimit), step)
	if request == 0 && (b.asked || s.limits.wants(name, "requests.") || s.limits.wants(name, "")) {
		request = value(name, minRequest)
	}
	request = max(request, b.min)
	if limit > 0 {
		limit = max(limit, b.min, request)
	}
	if b.max > 0 {
		request, limit = min(request, b.max), min(limit, b.max)
	}
	if limit > 0 && b.ratio > 0 && float64(limit) > float64(request)*b.ratio {
		limit = int64(float64(request) * b.ratio)
		if least := value(name, minLimit); limit < least && (b.max == 0 || least <= b.max) {
			request, limit = int64(float64(least)/b.ratio)+1, least
		}
	}
	if limit > 0 {
		request = min(request, limit)
	}
	if guaranteed {
		request = limit
	}
	return request, limit
}

func (s *sizing) podHasLimit(name corev1.ResourceName) bool {
	if !hasPodLevel(s.pod) {
		return false
	}
	_, set := s.pod.Spec.Resources.Limits[name]
	return set
}

// between is some steps from one value towards a lower one.
func between(from, to, step int64) int64 {
	if from <= to {
		return from
	}
	return from - (from-to)/steps*step
}

// value is a quantity as a number: milli of CPU, bytes of memory.
func value(name corev1.ResourceName, list corev1.ResourceList) int64 {
	q := list[name]
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func quantityOf(name corev1.ResourceName, value int64) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(value, resource.DecimalSI)
	}
	return *resource.NewQuantity(value, resource.BinarySI)
}

// bounds are what LimitRanges say about a resource of a container.
type bounds struct {
	min, max, usual int64 // 0: nothing
	ratio           float64
	asked, limited  bool   // there must be, or will be, a request, a limit
	of              string // which LimitRange gives the limit
}

func (l *NamespaceLimits) bounds(name corev1.ResourceName) (b bounds) {
	for _, item := range l.items(corev1.LimitTypeContainer) {
		if _, set := item.Min[name]; set {
			b.min, b.asked = max(b.min, value(name, item.Min)), true
		}
		if _, set := item.Default[name]; set {
			b.usual, b.limited, b.of = value(name, item.Default), true, "LimitRange "+item.of
		}
		if _, set := item.Max[name]; set {
			if m := value(name, item.Max); b.max == 0 || m < b.max {
				b.max = m
			}
			b.limited, b.of = true, "LimitRange "+item.of
		}
		if q, set := item.MaxLimitRequestRatio[name]; set {
			if r := q.AsApproximateFloat64(); b.ratio == 0 || r < b.ratio {
				b.ratio = r
			}
			b.asked, b.limited, b.of = true, true, "LimitRange "+item.of
		}
	}
	return b
}

// wants reports that a quota has something of a resource, which containers have to say then.
func (l *NamespaceLimits) wants(name corev1.ResourceName, prefix corev1.ResourceName) bool {
	return slices.ContainsFunc(l.Quotas, func(q *corev1.ResourceQuota) bool {
		_, set := hardOf(q)[prefix+name]
		return set
	})
}

// notes tell what of a size was not asked for.
func (s *sidecarSize) notes(wanted corev1.ResourceRequirements) (all []string) {
	if limit, set := s.Limits[corev1.ResourceCPU]; set && wanted.Limits.Cpu().IsZero() {
		all = append(all, fmt.Sprintf(
			"the sidecar has a CPU limit of %s, because of its namespace or its pod, and holds up events when it reaches that: "+
				"say %s to choose it", limit.String(), CPULimitAnnotation))
	}
	for _, name := range computed {
		if got, want := s.Requests[name], wanted.Requests[name]; got.Cmp(want) < 0 {
			all = append(all, fmt.Sprintf(
				"the sidecar asks for %s of %s instead of %s, which is all that its namespace or its pod has room for",
				got.String(), name, want.String()))
		}
	}
	return all
}
