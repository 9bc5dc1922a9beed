package rig

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Pods is where the pods are, and their namespace's path.
const Pods = "/api/v1/namespaces/default/pods"

// AllPods is the same collection in all namespaces.
const AllPods = "/api/v1/pods"

// PodPath is the path of a pod made by CreatePods.
func PodPath(i int) string { return Pods + "/" + podName(i) }

// NodeName is the node of each nodes-th pod.
func NodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

func podName(i int) string { return fmt.Sprintf("web-5d8f7c9b6d-%05d", i) }

// Slices is how many values the label "slice" has.
const Slices = 9

// CreatePods creates pods from the first on, up to the last, which it leaves out, spread evenly
// over a number of nodes and over the values of the label "slice": about 9 kB of JSON each, as pods
// of a Deployment with a sidecar have.
func (p *Pair) CreatePods(ctx context.Context, first, last, nodes int) error {
	return p.Create(ctx, Pods, last-first, func(i int) []byte {
		text, err := json.Marshal(pod(first+i, nodes))
		if err != nil {
			panic(fmt.Sprintf("BUG: a pod without JSON: %v", err))
		}
		return text
	})
}

func pod(i, nodes int) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name:         podName(i),
			GenerateName: "web-5d8f7c9b6d-",
			Labels: map[string]string{
				"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-" + strconv.Itoa(i%50),
				"pod-template-hash": "5d8f7c9b6d",
				"slice":             strconv.Itoa(i % Slices),
			},
			Annotations: map[string]string{
				"kubectl.kubernetes.io/restartedAt": "2026-03-01T12:00:00Z", "prometheus.io/scrape": "true",
				"prometheus.io/port": "9090",
				"checksum/config":    fmt.Sprintf("%064x", i), "at": "",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d8f7c9b6d",
				UID:        types.UID(fmt.Sprintf("6c1f0c5e-0000-4000-8000-%012d", i/100)),
				Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Spec: corev1.PodSpec{
			NodeName:           NodeName(i % nodes),
			ServiceAccountName: "web",
			PriorityClassName:  "",
			Containers:         []corev1.Container{container("web", i, 6), container("sidecar", i, 2)},
			InitContainers:     []corev1.Container{container("migrate", i, 1)},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "web-config"},
				}}},
				{Name: "secrets", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "web-secrets"}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.ScheduleAnyway,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "web"}},
			}},
		},
	}
}

// container is one of the i-th pod, with so many environment variables of its own.
func container(name string, i, variables int) corev1.Container {
	c := corev1.Container{
		Name: name, Image: "registry.example.com/team/" + name + ":v1.42.0", ImagePullPolicy: corev1.PullIfNotPresent,
		Args:  []string{"--config=/etc/web/config.yaml", "--log-level=info", "--listen=:8080"},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"),
				corev1.ResourceMemory: resource.MustParse("128Mi")},
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/web", ReadOnly: true}, {Name: "secrets", MountPath: "/etc/secrets",
				ReadOnly: true}, {Name: "scratch", MountPath: "/scratch"},
		},
	}
	for v := range variables {
		value := sha256.Sum256(fmt.Append(nil, name, i, v)) // which does not compress
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", v), Value: hex.EncodeToString(value[:16])})
	}
	if name != "migrate" { // which runs once
		probe := func(path string) *corev1.Probe {
			return &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http")}},
				PeriodSeconds: 10, TimeoutSeconds: 2,
			}
		}
		c.LivenessProbe, c.ReadinessProbe = probe("/healthz"), probe("/readyz")
	}
	return c
}
