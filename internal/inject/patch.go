package inject

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Operation is one of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"` // add or replace
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Patch is done in its order. Its paths begin at a pod template. It adds keys that are not there and the first items of lists, and replaces nothing
// but what the API server itself has mounted for the service account.
type Patch []Operation

// at is the patch of what holds the template at prefix.
func (p Patch) at(prefix string) Patch {
	moved := make(Patch, len(p))
	for i, o := range p {
		moved[i] = Operation{o.Op, prefix + o.Path, o.Value}
	}
	return moved
}

// planner collects a patch.
type planner struct{ patch Patch }

func (p *planner) add(path string, value any) {
	p.patch = append(p.patch, Operation{"add", path, value})
}

// prepend adds items in front of a list that has n items now; a list without any may not be there.
func prepend[T any](p *planner, list string, n int, items ...T) {
	if n == 0 {
		p.add(list, items)
		return
	}
	for i := len(items) - 1; i >= 0; i-- {
		p.add(list+"/0", items[i])
	}
}

// annotate marks the template.
func (p *planner) annotate(template *Template) {
	const value = "true"
	switch {
	case len(template.Annotations) > 0:
		p.add("/metadata/annotations/"+escape(InjectedAnnotation), value)
	case template.Name != "" || template.GenerateName != "" || template.Namespace != "" || len(template.Labels) > 0:
		p.add("/metadata/annotations", map[string]string{InjectedAnnotation: value})
	default:
		p.add("/metadata", map[string]any{"annotations": map[string]string{InjectedAnnotation: value}})
	}
}

func (p *planner) addContainer(spec *Spec, c corev1.Container) {
	prepend(p, "/spec/initContainers", len(spec.InitContainers), c)
}

// addVolumes adds two that are in memory: what is in them is gone with the pod, and on no disk.
func (p *planner) addVolumes(spec *Spec) {
	size := resource.MustParse("1Mi")
	memory := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size}}
	prepend(p, "/spec/volumes", len(spec.Volumes), corev1.Volume{Name: FilesVolume, VolumeSource: memory}, corev1.Volume{Name: KeyVolume, VolumeSource: memory})
}

// lead has the in-cluster configuration of a container lead to the sidecar.
func (p *planner) lead(container string, c *PodContainer, o Options) {
	prepend(p, container+"/env", len(c.Env), corev1.EnvVar{Name: hostVariable, Value: loopback}, corev1.EnvVar{Name: portVariable, Value: strconv.Itoa(int(o.Port))})
	mount := corev1.VolumeMount{Name: FilesVolume, MountPath: accountDir, ReadOnly: true}
	if i := accountMount(c); i >= 0 {
		p.patch = append(p.patch, Operation{"replace", fmt.Sprintf("%s/volumeMounts/%d", container, i), mount})
		return
	}
	prepend(p, container+"/volumeMounts", len(c.VolumeMounts), mount)
}

// escape is a key as a part of a JSON pointer (RFC 6901).
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

func unescape(part string) string {
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
}
