// Package inject adds Spillway to pods as a native sidecar: a first init container that goes on running, and the two variables and the folder
// by which the pod's other containers, unmodified, find it in the place of the API server.
//
// What is added to a pod is decided in one place, Plan, as a JSON patch of its template, whoever asks for it: Manifest writes it into the text
// of manifests, and an admission webhook answers with it. The invariant: what Remove takes out of what Manifest wrote leaves the manifest as it
// was, byte for byte.
package inject

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// What the parts of an injected pod are called.
const (
	// Container is the name of the sidecar.
	Container = "spillway"
	// FilesVolume is mounted by all containers: by the sidecar, which writes it, and by the others in the place of their service account.
	FilesVolume = "spillway-serviceaccount"
	// KeyVolume is mounted by the sidecar alone.
	KeyVolume = "spillway-key"

	filesDir = "/run/spillway/serviceaccount" // in the sidecar
	keyDir   = "/run/spillway/key"

	// accountDir is where in-cluster configuration is read from.
	accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenVolume begins the name of the volume that the API server adds for that.
	tokenVolume = "kube-api-access-"

	hostVariable = "KUBERNETES_SERVICE_HOST"
	portVariable = "KUBERNETES_SERVICE_PORT"
	loopback     = "127.0.0.1"
)

// LeftError says why a pod is left as it is, for a reason that is nobody's mistake.
type LeftError struct{ reason string }

func (e *LeftError) Error() string { return e.reason }

// Plan is what is to be done to a pod template so that it has a sidecar. It is a *LeftError that nothing is, and another error that says
// in a line why it cannot be and what to do.
func Plan(template *Template, o Options) (Patch, error) {
	if err := leave(template, o); err != nil {
		return nil, err
	}
	o, err := o.of(template)
	if err != nil {
		return nil, err
	}
	if err := refuse(template, o); err != nil {
		return nil, err
	}
	var p planner
	p.annotate(template)
	p.addContainer(&template.Spec, o.container(&template.Spec))
	p.addVolumes(&template.Spec)
	for i := range template.Spec.InitContainers {
		p.lead(fmt.Sprintf("/spec/initContainers/%d", i+1), &template.Spec.InitContainers[i], o) // behind the sidecar
	}
	for i := range template.Spec.Containers {
		p.lead(fmt.Sprintf("/spec/containers/%d", i), &template.Spec.Containers[i], o)
	}
	return p.patch, nil
}

// leave says why there is nothing to do.
func leave(template *Template, o Options) error {
	switch {
	case template.Annotations[OptAnnotation] == OptOut || template.Labels[OptAnnotation] == OptOut:
		return &LeftError{OptAnnotation + " is " + OptOut}
	case template.Annotations[InjectedAnnotation] != "":
		return &LeftError{"it is injected already"}
	}
	mounted := slices.ContainsFunc(everyContainer(&template.Spec), func(c *PodContainer) bool { return accountMount(c) >= 0 })
	automount := template.Spec.AutomountServiceAccountToken
	if !mounted && (o.Admitted || automount != nil && !*automount) {
		return &LeftError{"its containers are given no token of a service account (automountServiceAccountToken), so nothing in it talks to the API server as the pod"}
	}
	return nil
}

// refuse says why a pod cannot have a sidecar.
func refuse(template *Template, o Options) error {
	spec := &template.Spec
	switch {
	case len(spec.Containers) == 0:
		return fmt.Errorf("has no containers")
	case spec.HostNetwork && !o.AllowHostNetwork:
		return fmt.Errorf("is in the network of its node (hostNetwork), whose ports it shares with all such pods: give it ports that are free on its nodes "+
			"(%s, %s) and %s: \"true\"", PortAnnotation, HealthPortAnnotation, HostNetworkAnnotation)
	case spec.OS != nil && spec.OS.Name == corev1.Windows || spec.NodeSelector[corev1.LabelOSStable] == string(corev1.Windows):
		return fmt.Errorf("is for Windows, which Spillway is not: annotate it %s: %s", OptAnnotation, OptOut)
	}
	for _, v := range spec.Volumes {
		if v.Name == FilesVolume || v.Name == KeyVolume {
			return fmt.Errorf("has a volume %s of its own: rename it", v.Name)
		}
	}
	for _, c := range everyContainer(spec) {
		if err := refuseContainer(c, o); err != nil {
			return err
		}
	}
	return nil
}

func refuseContainer(c *PodContainer, o Options) error {
	if c.Name == Container {
		return fmt.Errorf("has a container %s of its own: rename it", c.Name)
	}
	for _, e := range c.Env {
		if e.Name == hostVariable || e.Name == portVariable {
			return fmt.Errorf("container %s sets %s itself: leave that out, or annotate the pod %s: %s", c.Name, e.Name, OptAnnotation, OptOut)
		}
	}
	if i := accountMount(c); i >= 0 && !strings.HasPrefix(c.VolumeMounts[i].Name, tokenVolume) {
		return fmt.Errorf("container %s mounts its volume %s at %s, where its place would be: leave that out, or annotate the pod %s: %s",
			c.Name, c.VolumeMounts[i].Name, accountDir, OptAnnotation, OptOut)
	}
	for _, p := range c.Ports {
		if (p.ContainerPort == o.Port || p.ContainerPort == o.HealthPort) && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) {
			return fmt.Errorf("container %s has port %d, which the sidecar would have: give that another by %s or %s", c.Name, p.ContainerPort, PortAnnotation, HealthPortAnnotation)
		}
	}
	return nil
}

// accountMount is the place of what a container mounts where in-cluster configuration is read; -1: nothing.
func accountMount(c *PodContainer) int {
	return slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return path.Clean(m.MountPath) == accountDir })
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
