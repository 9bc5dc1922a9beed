package inject

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// user is the user of the image. It can read the token whatever the user of the other containers
// is, see SECURITY.md.
const user = 65532

// startSeconds is how long the sidecar may take to be ready, and the containers after it have to
// wait.
const startSeconds = 300

// container is the sidecar. The next container is started when its startup probe succeeds, and it
// is ended after all others. account is where it mounts the pod's service account from; nil: a
// volume of its own.
func (o Options) container(account *corev1.VolumeMount, size *sidecarSize) corev1.Container {
	health := intstr.FromInt32(o.HealthPort)
	c := corev1.Container{
		Name:            Container,
		Image:           o.Image,
		ImagePullPolicy: o.PullPolicy,
		RestartPolicy:   ptr.To(corev1.ContainerRestartPolicyAlways),
		Args: append([]string{
			"--sidecar-dir=" + filesDir,
			"--sidecar-key-dir=" + keyDir,
			"--listen=",
			"--listen-tls=" + loopback + ":" + strconv.Itoa(int(o.Port)),
			"--metrics-listen=:" + strconv.Itoa(int(o.HealthPort)),
			"--resources=" + o.Resources,
		}, o.Flags...),
		Ports:     []corev1.ContainerPort{{Name: "spillway-health", ContainerPort: o.HealthPort}},
		Resources: size.ResourceRequirements,
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: ptr.To[int64](user), RunAsGroup: ptr.To[int64](user), RunAsNonRoot: ptr.To(true),
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		StartupProbe: &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: health}},
			PeriodSeconds:    1,
			TimeoutSeconds:   3,
			FailureThreshold: startSeconds,
		},
		LivenessProbe: &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/livez", Port: health}},
			PeriodSeconds:    10,
			TimeoutSeconds:   5,
			FailureThreshold: 6,
		},
		VolumeMounts: []corev1.VolumeMount{{Name: FilesVolume, MountPath: filesDir}, {Name: KeyVolume, MountPath: keyDir}},
	}
	if account == nil {
		account = &corev1.VolumeMount{Name: TokenVolume, MountPath: accountDir, ReadOnly: true}
	}
	c.VolumeMounts = append(c.VolumeMounts, *account)
	return c
}

func (o Options) requirements() (r corev1.ResourceRequirements) {
	set := func(list *corev1.ResourceList, name corev1.ResourceName, quantity string) {
		if quantity == "" {
			return
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = resource.MustParse(quantity) // Validate has seen it
	}
	set(&r.Requests, corev1.ResourceCPU, o.CPURequest)
	set(&r.Requests, corev1.ResourceMemory, o.MemoryRequest)
	set(&r.Limits, corev1.ResourceCPU, o.CPULimit)
	set(&r.Limits, corev1.ResourceMemory, o.MemoryLimit)
	return r
}
