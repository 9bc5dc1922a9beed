package limits

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// rangeItem is one limit of a LimitRange.
type rangeItem struct {
	corev1.LimitRangeItem
	of string // the name of the LimitRange
}

func (r *Rules) rangeItems() (all []rangeItem) {
	for _, of := range r.Ranges {
		for _, item := range of.Spec.Limits {
			all = append(all, rangeItem{item, of.Name})
		}
	}
	return all
}

// names are the resources that an item is about, in order.
func (i rangeItem) names() []corev1.ResourceName {
	all := map[corev1.ResourceName]bool{}
	for _, list := range []corev1.ResourceList{i.Min, i.Max, i.Default, i.DefaultRequest, i.MaxLimitRequestRatio} {
		for name := range list {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// clamp returns the size closest to a wanted one that the LimitRanges allow containers. If a min is
// above a max, it is the max.
func (r *Rules) clamp(name corev1.ResourceName, size resource.Quantity) resource.Quantity {
	items := slices.DeleteFunc(r.rangeItems(), func(i rangeItem) bool { return i.Type != corev1.LimitTypeContainer })
	for _, i := range items {
		size = larger(size, i.Min[name])
	}
	for _, i := range items {
		if q, set := i.Max[name]; set && size.Cmp(q) > 0 {
			size = q
		}
	}
	return size
}

// applyRanges fits a sidecar into the LimitRanges. It sets 0 for resources that the sidecar does
// not have, because the sidecar would get the defaults of the LimitRanges otherwise. total is what
// the pod has with the sidecar.
func (r *Rules) applyRanges(s *Size, total corev1.ResourceRequirements) error {
	for _, i := range r.rangeItems() {
		var err error
		switch {
		case i.Type == corev1.LimitTypeContainer:
			err = i.applyToContainer(s)
		case i.Type == corev1.LimitTypePod && s.isSized():
			err = i.checkPod(total)
		case i.Type == corev1.LimitTypePod, i.Type == corev1.LimitTypePersistentVolumeClaim,
			strings.Contains(string(i.Type), "/"): // the type of an extension, which is not about pods
		default:
			err = newUnknownRuleError("LimitRange %s has a limit of type %s", i.of, i.Type)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// applyToContainer checks the size of a sidecar, and sets 0 for resources that it does not have. 0
// keeps every max. The sidecar's requests are its limits, which keeps every ratio.
func (i rangeItem) applyToContainer(s *Size) error {
	for _, name := range i.names() {
		size := s.Requests[name]
		least := i.Min[name]
		most, hasMax := i.Max[name]
		_, hasRatio := i.MaxLimitRequestRatio[name]
		_, hasDefault := i.Default[name]
		switch {
		case size.IsZero() && (least.Sign() > 0 || hasRatio):
			return newUnknownRuleError("LimitRange %s demands %s of every container", i.of, name)
		case size.IsZero():
			s.Requests[name] = resource.Quantity{}
			if hasDefault || hasMax || name != corev1.ResourceEphemeralStorage {
				s.Limits[name] = resource.Quantity{} // extended resources need a limit that is the request
			}
		case size.Cmp(least) < 0:
			return newFullError("LimitRange %s: min of %s per Container is %s", i.of, name, least.String())
		case hasMax && size.Cmp(most) > 0:
			return newFullError("LimitRange %s: max of %s per Container is %s", i.of, name, most.String())
		}
	}
	return nil
}

// checkPod checks a pod with its sidecar. A sidecar keeps every min, because sums grow. It may
// break a ratio, if init containers precede it.
func (i rangeItem) checkPod(total corev1.ResourceRequirements) error {
	for _, name := range Computed {
		if _, set := i.MaxLimitRequestRatio[name]; set {
			return newUnknownRuleError("LimitRange %s has a maxLimitRequestRatio of %s per Pod", i.of, name)
		}
		most, set := i.Max[name]
		request, limit := total.Requests[name], total.Limits[name]
		if set && (request.Cmp(most) > 0 || limit.Cmp(most) > 0) {
			return newFullError("LimitRange %s: max of %s per Pod is %s", i.of, name, most.String())
		}
	}
	return nil
}
