// Package inject adds Spillway to pods as a native sidecar: an init container that goes on running,
// and the variables and the folder by which the pod's other containers, unmodified, find it instead
// of the API server.
//
// Plan alone decides what is added to a pod, as a JSON patch of its template. Manifest applies the
// patch to manifests, and an admission webhook answers with it. Invariant: the content of what
// Manifest returns is what it read, patched, and Remove turns it back into what was read.
package inject

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"spillway/internal/sidecar/limits"
)

// Names in an injected pod.
const (
	// Container is the name of the sidecar.
	Container = "spillway"
	// FilesVolume is mounted by the sidecar, which writes it, and by the containers that use the
	// sidecar, instead of their service account.
	FilesVolume = "spillway-serviceaccount"
	// KeyVolume holds the sidecar's private key, and only the sidecar mounts it.
	KeyVolume = "spillway-key"
	// TokenVolume is the sidecar's service account, if the pod has no volume with one that the sidecar
	// can mount.
	TokenVolume = "spillway-token"

	filesDir = "/run/spillway/serviceaccount" // in the sidecar
	keyDir   = "/run/spillway/key"

	// accountDir is where programs read in-cluster configuration.
	accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	// apiServerVolumePrefix begins the name of the volume that the API server mounts there.
	apiServerVolumePrefix = "kube-api-access-"

	hostVariable  = "KUBERNETES_SERVICE_HOST"
	portVariable  = "KUBERNETES_SERVICE_PORT"
	httpsVariable = "KUBERNETES_SERVICE_PORT_HTTPS"
	loopback      = "127.0.0.1"
)

// leadVariables are the variables that lead containers to the sidecar.
var leadVariables = []string{hostVariable, portVariable, httpsVariable}

// SkippedError says why a pod stays as it is.
type SkippedError struct {
	reason    string
	IsNotable bool // users do not expect it
}

func (e *SkippedError) Error() string { return e.reason }

func newNotableSkip(format string, args ...any) error {
	return &SkippedError{fmt.Sprintf(format, args...), true}
}

// Pod is a pod, or a template of pods, and what is known about it besides its text.
type Pod struct {
	*Template

	// IsAdmitted says that the pod has passed the API server's own admission, which mounts the token
	// of its service account.
	IsAdmitted bool

	// Rules are those of the pod's namespace; nil: they are not known.
	Rules *limits.Rules
}

// awaitsAccount reports that the API server is yet to mount the token of the pod's service account.
func (p Pod) awaitsAccount() bool {
	automount := p.Spec.AutomountServiceAccountToken
	return !p.IsAdmitted && (automount == nil || *automount)
}

// Plan returns the patch that gives a pod a sidecar, with notes about it. A *SkippedError says why
// the pod stays as it is. Any other error says in one line why it cannot have a sidecar, and the
// remedy.
func Plan(pod Pod, o Options) (Patch, []string, error) {
	if err := checkWanted(pod); err != nil {
		return nil, nil, err
	}
	o, err := o.withAnnotations(pod.Template)
	if err != nil {
		return nil, nil, err
	}
	if err := checkPossible(pod.Template, o); err != nil {
		return nil, nil, err
	}
	spec := &pod.Spec
	at, err := o.findPlace(spec)
	if err != nil {
		return nil, nil, err
	}
	size, err := o.sizeOf(pod)
	if err != nil {
		return nil, nil, err
	}
	account := findAccountMount(spec)
	var p planner
	p.markInjected(pod)
	p.addContainer(spec, at, o.newContainer(account, size))
	p.addVolumes(spec, account == nil)
	p.raisePodResources(spec, size)
	for i := at; i < len(spec.InitContainers); i++ { // those behind the sidecar, which moves them by one
		p.leadToSidecar(pod, fmt.Sprintf("/spec/initContainers/%d", i+1), &spec.InitContainers[i], o)
	}
	for i := range spec.Containers {
		p.leadToSidecar(pod, fmt.Sprintf("/spec/containers/%d", i), &spec.Containers[i], o)
	}
	return p.patch, append(size.Notes, p.notes...), nil
}

// checkWanted returns a *SkippedError if a pod needs no sidecar.
func checkWanted(pod Pod) error {
	isRequested := pod.Annotations[OptAnnotation] == OptIn || pod.Labels[OptAnnotation] == OptIn
	switch {
	case pod.Annotations[OptAnnotation] == OptOut || pod.Labels[OptAnnotation] == OptOut:
		return &SkippedError{reason: OptAnnotation + " is " + OptOut}
	case isInjected(&pod.Spec):
		return &SkippedError{reason: "it is injected already"}
	case !pod.hasAccountToken():
		return &SkippedError{"its containers are given no token of a service account (automountServiceAccountToken of the " +
			"pod or of its service account), so nothing in it talks to the API server as the pod: set that to " +
			"true, or mount a projected volume at " + accountDir, isRequested}
	}
	return nil
}

// isInjected reports that a pod has the sidecar that Plan adds: an init container of its name that
// mounts its two volumes. The annotation proves nothing: tools drop it (kubectl debug --copy-to) or
// copy it to other pods.
func isInjected(spec *Spec) bool {
	return slices.ContainsFunc(spec.InitContainers, func(c PodContainer) bool {
		return c.Name == Container && hasMountAt(&c, FilesVolume, filesDir) && hasMountAt(&c, KeyVolume, keyDir)
	})
}

func hasMountAt(c *PodContainer, volume, dir string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == volume && path.Clean(m.MountPath) == dir
	})
}

// hasAccountToken reports that a container of a pod has, or will have, the token of its service
// account.
func (p Pod) hasAccountToken() bool {
	return p.awaitsAccount() ||
		slices.ContainsFunc(everyContainer(&p.Spec), func(c *PodContainer) bool { return accountMountIndex(c) >= 0 })
}

// checkPossible returns why a pod cannot have a sidecar: an error, or a *SkippedError if the pod
// can be left as it is.
func checkPossible(template *Template, o Options) error {
	spec := &template.Spec
	if err := checkContainers(len(spec.InitContainers) + len(spec.Containers)); err != nil {
		return err
	}
	switch {
	case len(spec.Containers) == 0:
		return fmt.Errorf("has no containers")
	case spec.HostNetwork && !o.AllowHostNetwork:
		return fmt.Errorf("is in the network of its node (hostNetwork), whose ports it shares with all such pods: give it "+
			"ports that are free on its nodes (%s, %s) and %s: \"true\"", portSetting.annotation(),
			healthPortSetting.annotation(), hostNetworkSetting.annotation())
	case spec.OS != nil && spec.OS.Name == corev1.Windows,
		spec.NodeSelector[corev1.LabelOSStable] == string(corev1.Windows):
		return fmt.Errorf("is for Windows, which Spillway is not: annotate it %s: %s", OptAnnotation, OptOut)
	}
	for _, v := range spec.Volumes {
		if slices.Contains([]string{FilesVolume, KeyVolume, TokenVolume}, v.Name) {
			return fmt.Errorf("has a volume %s, but no sidecar that mounts it: remove it with spillway uninject if it is left "+
				"from one, or rename it", v.Name)
		}
	}
	for _, c := range everyContainer(spec) {
		if err := checkContainer(c, o); err != nil {
			return err
		}
	}
	return checkAccount(spec)
}

func checkContainer(c *PodContainer, o Options) error {
	if c.Name == Container {
		return fmt.Errorf("has a container %s of its own: rename it", c.Name)
	}
	for _, e := range c.Env {
		if slices.Contains(leadVariables, e.Name) {
			return fmt.Errorf("container %s sets %s itself: remove that, or annotate the pod %s: %s", c.Name, e.Name,
				OptAnnotation, OptOut)
		}
		if slices.Contains(exceptVariables, e.Name) && strings.Contains(e.Value, exceptMark) {
			return fmt.Errorf("container %s has %s in %s, which marks what injection adds: remove it", c.Name, exceptMark,
				e.Name)
		}
	}
	for _, p := range c.Ports {
		if (p.ContainerPort == o.Port || p.ContainerPort == o.HealthPort) &&
			(p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) {
			return fmt.Errorf("container %s has port %d, which is the sidecar's: give the sidecar another by %s or %s", c.Name,
				p.ContainerPort, portSetting.annotation(), healthPortSetting.annotation())
		}
	}
	return nil
}

// accountMountIndex is the index of the volume mount of a container at accountDir; -1: it has none.
func accountMountIndex(c *PodContainer) int {
	return slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return path.Clean(m.MountPath) == accountDir
	})
}

func everyContainer(spec *Spec) []*PodContainer {
	var all []*PodContainer
	for i := range spec.InitContainers {
		all = append(all, &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		all = append(all, &spec.Containers[i])
	}
	return all
}
