package inject

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// planRemoval returns the patch that removes from a pod template what Plan has added to it; empty:
// it has nothing of that. raw is the whole content of the template.
func planRemoval(template *Template, raw map[string]any) Patch {
	var p planner
	_, isMarked := template.Annotations[InjectedAnnotation]
	// A tool may drop the annotation or the sidecar, but not a volume that is mounted.
	if isMarked || slices.ContainsFunc(template.Spec.Volumes, func(v Volume) bool { return v.Name == FilesVolume }) {
		p.removeSidecar(&template.Spec)
	}
	metadata, _ := raw["metadata"].(map[string]any)
	p.removeMarks(template, metadata)
	return p.patch
}

// removeSidecar removes the sidecar, and all that leads to it.
func (p *planner) removeSidecar(spec *Spec) {
	mount := ownMount(spec)
	for i := range spec.InitContainers {
		p.leadToAPIServer(fmt.Sprintf("/spec/initContainers/%d", i), &spec.InitContainers[i], mount)
	}
	for i := range spec.Containers {
		p.leadToAPIServer(fmt.Sprintf("/spec/containers/%d", i), &spec.Containers[i], mount)
	}
	drop(p, "/spec/initContainers", spec.InitContainers, func(c PodContainer) bool { return c.Name == Container })
	drop(p, "/spec/volumes", spec.Volumes, func(v Volume) bool {
		return slices.Contains([]string{FilesVolume, KeyVolume, TokenVolume}, v.Name)
	})
}

func (p *planner) remove(path string) { p.patch = append(p.patch, Operation{Op: "remove", Path: path}) }

// drop removes our items of a list. If there are no others, it removes the list.
func drop[T any](p *planner, list string, items []T, isOurs func(T) bool) {
	if len(items) > 0 && !slices.ContainsFunc(items, func(item T) bool { return !isOurs(item) }) {
		p.remove(list)
		return
	}
	for i, item := range slices.Backward(items) { // the last one first: removal moves later items
		if isOurs(item) {
			p.remove(fmt.Sprintf("%s/%d", list, i))
		}
	}
}

// leadToAPIServer undoes leadToSidecar. mount is the container's former mount of its service
// account; nil: the API server adds it.
func (p *planner) leadToAPIServer(container string, c *PodContainer, mount *corev1.VolumeMount) {
	if c.Name == Container {
		return // planRemoval removes it as a whole
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

// ownMount is the pod's own mount of its service account, which the sidecar shared; nil: there was
// none.
func ownMount(spec *Spec) *corev1.VolumeMount {
	for _, c := range spec.InitContainers {
		for _, m := range c.VolumeMounts {
			if c.Name == Container && path.Clean(m.MountPath) == accountDir && m.Name != TokenVolume &&
				!strings.HasPrefix(m.Name, apiServerVolumePrefix) {
				return &m
			}
		}
	}
	return nil
}
