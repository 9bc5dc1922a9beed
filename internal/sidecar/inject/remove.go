package inject

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// planRemoval is the change that takes out of a pod template what Plan has added to it; none if it
// has nothing of that. raw is all that the template says.
func planRemoval(template *Template, raw map[string]any) Patch {
	spec := &template.Spec
	_, isMarked := template.Annotations[InjectedAnnotation]
	if !isMarked && !slices.ContainsFunc(spec.Volumes, func(v Volume) bool { return v.Name == FilesVolume }) {
		return nil // tools drop annotations, or the sidecar alone, but not a volume that is mounted
	}
	var p planner
	mount := ownMount(spec)
	for i := range spec.InitContainers {
		p.leadToAPIServer(fmt.Sprintf("/spec/initContainers/%d", i), &spec.InitContainers[i], mount)
	}
	for i := range spec.Containers {
		p.leadToAPIServer(fmt.Sprintf("/spec/containers/%d", i), &spec.Containers[i], mount)
	}
	drop(&p, "/spec/initContainers", spec.InitContainers, func(c PodContainer) bool { return c.Name == Container })
	drop(&p, "/spec/volumes", spec.Volumes, func(v Volume) bool {
		return slices.Contains([]string{FilesVolume, KeyVolume, TokenVolume}, v.Name)
	})
	metadata, _ := raw["metadata"].(map[string]any)
	switch {
	case !isMarked:
	case len(template.Annotations) > 1:
		p.remove("/metadata/annotations/" + escape(InjectedAnnotation))
	case len(metadata) > 1:
		p.remove("/metadata/annotations")
	default:
		p.remove("/metadata")
	}
	return p.patch
}

func (p *planner) remove(path string) { p.patch = append(p.patch, Operation{Op: "remove", Path: path}) }

// drop removes items of a list, and with all of them the list.
func drop[T any](p *planner, list string, items []T, isOurs func(T) bool) {
	if len(items) > 0 && !slices.ContainsFunc(items, func(item T) bool { return !isOurs(item) }) {
		p.remove(list)
		return
	}
	for i, item := range slices.Backward(items) { // later items first, whose places change otherwise
		if isOurs(item) {
			p.remove(fmt.Sprintf("%s/%d", list, i))
		}
	}
}

// leadToAPIServer has the in-cluster configuration of a container lead to the API server. mount is
// what the container mounted before; nil: the API server adds it.
func (p *planner) leadToAPIServer(container string, c *PodContainer, mount *corev1.VolumeMount) {
	if c.Name == Container {
		return // it goes as a whole
	}
	for i, v := range c.Env {
		if before, isLonger := strings.CutSuffix(v.Value, ","+excepted); isLonger &&
			slices.Contains(exceptVariables, v.Name) {
			p.patch = append(p.patch, Operation{"replace", fmt.Sprintf("%s/env/%d/value", container, i), before})
		}
	}
	drop(p, container+"/env", c.Env, func(v Variable) bool {
		return slices.Contains(leadVariables, v.Name) || slices.Contains(exceptVariables, v.Name) && v.Value == excepted
	})
	isOurs := func(m corev1.VolumeMount) bool { return m.Name == FilesVolume }
	if i := slices.IndexFunc(c.VolumeMounts, isOurs); i >= 0 && mount != nil {
		p.patch = append(p.patch, Operation{"replace", fmt.Sprintf("%s/volumeMounts/%d", container, i), mount})
		return
	}
	drop(p, container+"/volumeMounts", c.VolumeMounts, isOurs)
}

// ownMount is the mount of the pod's own service account that the sidecar was given; nil if there
// is none.
func ownMount(spec *Spec) *corev1.VolumeMount {
	for _, c := range spec.InitContainers {
		for _, m := range c.VolumeMounts {
			if c.Name == Container && path.Clean(m.MountPath) == accountDir && m.Name != TokenVolume &&
				!strings.HasPrefix(m.Name, tokenVolume) {
				return &m
			}
		}
	}
	return nil
}
