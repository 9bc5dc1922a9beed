package inject

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"spillway/internal/sidecar/limits"
)

// imageUser is the user of the image. It can read the token whatever the user of the other
// containers is, see SECURITY.md.
const imageUser = 65532

// startSeconds is how long the sidecar may take to be ready. Containers behind it wait for that.
const startSeconds = 300

// newContainer makes the sidecar. Kubernetes starts the next container when the sidecar's startup
// probe succeeds, and ends the sidecar after all others. account is the mount of the pod's service
// account; nil: the sidecar mounts TokenVolume.
func (o Options) newContainer(account *corev1.VolumeMount, size *limits.Size) corev1.Container {
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
			RunAsUser: ptr.To[int64](imageUser), RunAsGroup: ptr.To[int64](imageUser), RunAsNonRoot: ptr.To(true),
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

// requirements are the requests and limits that are wanted. Validate must have accepted o.
func (o Options) requirements() (r corev1.ResourceRequirements) {
	set := func(list *corev1.ResourceList, name corev1.ResourceName, quantity string) {
		if quantity == "" {
			return
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = resource.MustParse(quantity)
	}
	set(&r.Requests, corev1.ResourceCPU, o.CPURequest)
	set(&r.Requests, corev1.ResourceMemory, o.MemoryRequest)
	set(&r.Limits, corev1.ResourceCPU, o.CPULimit)
	set(&r.Limits, corev1.ResourceMemory, o.MemoryLimit)
	return r
}

// sizeOf is the size of the sidecar of a pod, or a *SkippedError if a rule keeps it from having
// one.
func (o Options) sizeOf(p Pod) (*limits.Size, error) {
	bare, err := p.newPod()
	if err != nil {
		return nil, err
	}
	if resourcehelper.IsPodLevelResourcesSet(bare) && !p.IsAdmitted {
		return nil, newNotableSkip("says what it requests as a whole (spec.resources), which the sidecar would share: let " +
			"the webhook inject it, which raises that")
	}
	rules := p.Rules
	if rules == nil {
		rules = &limits.Rules{}
	}
	size, err := rules.Size(bare, o.requirements(), o.hasOwnSize(p.Template))
	var broken *limits.RuleError
	switch {
	case errors.As(err, &broken) && broken.IsFull:
		return nil, newNotableSkip("there is no room for a sidecar: %s; raise that, or say a smaller size by %s, %s and the "+
			"like", broken.Rule, memoryRequestSetting.annotation(), memoryLimitSetting.annotation())
	case errors.As(err, &broken):
		return nil, newNotableSkip("%s, which a sidecar may break: change that rule, or annotate the pod %s: %s",
			broken.Rule, OptAnnotation, OptOut)
	case err != nil:
		return nil, err
	case size.HasUnwantedCPULimit:
		size.Notes = append(size.Notes, fmt.Sprintf("the sidecar has a CPU limit of %s, because of its namespace or its "+
			"pod, and holds up events when it reaches that: say %s to choose it", size.Limits.Cpu(),
			cpuLimitSetting.annotation()))
	}
	return size, nil
}

// hasOwnSize reports that a size was chosen for a template: a limit by flag or annotation, or a
// request by annotation. A request by flag does not count, because it has a default.
func (o Options) hasOwnSize(t *Template) bool {
	return o.CPULimit != "" || o.MemoryLimit != "" ||
		slices.ContainsFunc([]settingName{cpuRequestSetting, memoryRequestSetting}, func(name settingName) bool {
			return t.Annotations[name.annotation()] != ""
		})
}
