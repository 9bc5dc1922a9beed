package inject

import (
	"k8s.io/apimachinery/pkg/api/validation"
)

// Marks tell readers of a pod whether it is injected. Injection does not depend on them, because
// tools drop them, and copy them to other pods.
const (
	// InjectedAnnotation is added by Plan. It is also the label by which users select the pods that
	// the webhook injects; labels of templates belong to the authors of these.
	InjectedAnnotation = prefix + "injected"
	injectedValue      = "true"
	// NotInjectedAnnotation says why the webhook did not inject a pod.
	NotInjectedAnnotation = prefix + "not-injected"
)

// isMark reports that an annotation is none of the user's.
func isMark(annotation string) bool {
	return annotation == InjectedAnnotation || annotation == NotInjectedAnnotation
}

// Mark returns the patch that brings the marks of an admitted pod up to date, if Plan does not
// inject it. reason is why; "": nothing is wrong with that. Of a pod that has a sidecar already,
// the marks say so.
func Mark(template *Template, reason string) Patch {
	var p planner
	if isInjected(&template.Spec) {
		p.markInjected(Pod{Template: template, IsAdmitted: true})
		return p.patch
	}
	want := map[string]string{}
	if reason != "" {
		want[NotInjectedAnnotation] = reason
	}
	p.markAnnotations(template, want)
	if _, isStale := template.Labels[InjectedAnnotation]; isStale && len(template.OwnerReferences) == 0 {
		// The controller of a pod may select it by this label, and would create pods without end.
		p.remove("/metadata/labels/" + escape(InjectedAnnotation))
	}
	return p.patch
}

// markInjected adds InjectedAnnotation, and to an admitted pod the label, if they are missing.
func (p *planner) markInjected(pod Pod) {
	p.markAnnotations(pod.Template, map[string]string{InjectedAnnotation: injectedValue})
	switch {
	case !pod.IsAdmitted || pod.Labels[InjectedAnnotation] != "":
	case len(pod.Labels) > 0:
		p.add("/metadata/labels/"+escape(InjectedAnnotation), injectedValue)
	default: // the annotation is in the metadata, or there are so many that it has no room
		p.add("/metadata/labels", map[string]string{InjectedAnnotation: injectedValue})
	}
}

// markAnnotations leaves of the annotations that are marks only the wanted one, if there is room.
func (p *planner) markAnnotations(template *Template, want map[string]string) {
	bytes := 0
	for name, value := range template.Annotations {
		if !isMark(name) {
			bytes += len(name) + len(value)
		}
	}
	for _, name := range []string{InjectedAnnotation, NotInjectedAnnotation} {
		value, isWanted := want[name]
		now, isThere := template.Annotations[name]
		isWanted = isWanted && bytes+len(name)+len(value) <= validation.TotalAnnotationSizeLimitB
		switch {
		case !isWanted && isThere:
			p.remove("/metadata/annotations/" + escape(name))
		case !isWanted || now == value:
		case len(template.Annotations) > 0:
			p.add("/metadata/annotations/"+escape(name), value)
		case template.hasMetadata():
			p.add("/metadata/annotations", map[string]string{name: value})
		default:
			p.add("/metadata", map[string]any{"annotations": map[string]string{name: value}})
		}
	}
}

// hasMetadata reports that metadata is surely there, so that it is not replaced.
func (t *Template) hasMetadata() bool {
	return t.Name != "" || t.GenerateName != "" || t.Namespace != "" || len(t.Labels) > 0 || len(t.Annotations) > 0 ||
		len(t.OwnerReferences) > 0 || len(t.Finalizers) > 0
}

// removeMarks removes all marks, and the mappings that have nothing else. metadata is what is there
// of it.
func (p *planner) removeMarks(template *Template, metadata map[string]any) {
	var paths []string
	emptied := 0
	remove := func(field string, from map[string]string, names ...string) {
		var ours []string
		for _, name := range names {
			if _, isThere := from[name]; isThere {
				ours = append(ours, "/metadata/"+field+"/"+escape(name))
			}
		}
		if len(ours) > 0 && len(ours) == len(from) {
			ours, emptied = []string{"/metadata/" + field}, emptied+1
		}
		paths = append(paths, ours...)
	}
	remove("annotations", template.Annotations, InjectedAnnotation, NotInjectedAnnotation)
	remove("labels", template.Labels, InjectedAnnotation)
	if emptied > 0 && emptied == len(metadata) {
		paths = []string{"/metadata"}
	}
	for _, path := range paths {
		p.remove(path)
	}
}
