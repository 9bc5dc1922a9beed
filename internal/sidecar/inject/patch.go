package inject

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"spillway/internal/sidecar/limits"
)

// Operation is an operation of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"` // add, replace or remove
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Patch is a list of operations, applied in their order. Paths begin at a pod template. Plan's
// patch adds keys and items of lists. It replaces only the mounts of the service account, the value
// of NO_PROXY, and in admitted pods what the pod requests as a whole. It removes only marks that
// another pod has left.
type Patch []Operation

// at is the same patch of a document that has the template at prefix.
func (p Patch) at(prefix string) Patch {
	moved := make(Patch, len(p))
	for i, o := range p {
		moved[i] = Operation{o.Op, prefix + o.Path, o.Value}
	}
	return moved
}

// planner collects a patch, and the notes about it.
type planner struct {
	patch Patch
	notes []string
}

func (p *planner) addNote(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

func (p *planner) add(path string, value any) {
	p.patch = append(p.patch, Operation{"add", path, value})
}

// prepend adds items in front of a list that has n items. If n is 0, the list may be missing, so it
// is added as a whole.
func prepend[T any](p *planner, list string, n int, items ...T) {
	if n == 0 {
		p.add(list, items)
		return
	}
	for i := len(items) - 1; i >= 0; i-- {
		p.add(list+"/0", items[i])
	}
}

func (p *planner) addContainer(spec *Spec, at int, c corev1.Container) {
	if at == 0 {
		prepend(p, "/spec/initContainers", len(spec.InitContainers), c)
		return
	}
	p.add(fmt.Sprintf("/spec/initContainers/%d", at), c)
}

// addVolumes adds FilesVolume and KeyVolume, which are in memory: their contents are on no disk,
// and vanish with the pod. withAccount adds TokenVolume.
func (p *planner) addVolumes(spec *Spec, withAccount bool) {
	size := resource.MustParse("1Mi")
	memory := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory,
		SizeLimit: &size}}
	all := []corev1.Volume{{Name: FilesVolume, VolumeSource: memory}, {Name: KeyVolume, VolumeSource: memory}}
	if withAccount {
		all = append(all, newAccountVolume())
	}
	prepend(p, "/spec/volumes", len(spec.Volumes), all...)
}

// raisePodResources adds the sidecar's part to what a pod requests as a whole, if it does.
func (p *planner) raisePodResources(spec *Spec, size *limits.Size) {
	if size.Pod == nil {
		return
	}
	for _, list := range []struct {
		name   string
		before QuantityTexts
		now    corev1.ResourceList
	}{{"requests", spec.Resources.Requests, size.Pod.Requests}, {"limits", spec.Resources.Limits, size.Pod.Limits}} {
		path := "/spec/resources/" + list.name
		if len(list.before) == 0 && len(list.now) > 0 {
			p.add(path, list.now)
			continue
		}
		for _, name := range limits.Computed {
			if q, set := list.now[name]; set {
				p.add(path+"/"+string(name), q.String()) // which replaces a value
			}
		}
	}
}

// leadToSidecar has the in-cluster configuration of a container lead to the sidecar. It leaves out
// containers without the token, and containers of meshes.
func (p *planner) leadToSidecar(pod Pod, container string, c *PodContainer, o Options) {
	i := accountMountIndex(c)
	if isOfMesh(c.Name) || i < 0 && !pod.awaitsAccount() {
		return
	}
	port := strconv.Itoa(int(o.Port))
	variables := []Variable{{Name: hostVariable, Value: loopback}, {Name: portVariable, Value: port},
		{Name: httpsVariable, Value: port}}
	variables = append(variables, p.exceptLoopback(container, c)...)
	prepend(p, container+"/env", len(c.Env), variables...)
	mount := corev1.VolumeMount{Name: FilesVolume, MountPath: accountDir, ReadOnly: true}
	if i >= 0 {
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
