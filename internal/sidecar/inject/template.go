package inject

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"spillway/internal/quantity"
)

// Template is the part of a pod, or of a pod template, that decides whether and how it gets a
// sidecar. Nothing else is decoded, so the length of a pod's text bounds what it becomes in memory
// (see package admission). Only quantity.Parse parses its quantities: resource.ParseQuantity can
// take minutes (1e-100000000).
type Template struct {
	Metadata `json:"metadata"`
	Spec     Spec `json:"spec"`
}

// Metadata is part of ObjectMeta.
type Metadata struct {
	Name         string            `json:"name,omitempty"`
	GenerateName string            `json:"generateName,omitempty"`
	Namespace    string            `json:"namespace,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	Finalizers   []string          `json:"finalizers,omitempty"`

	OwnerReferences []struct{} `json:"ownerReferences,omitempty"` // only their number matters
}

// Spec is part of PodSpec.
type Spec struct {
	AutomountServiceAccountToken *bool             `json:"automountServiceAccountToken,omitempty"`
	HostNetwork                  bool              `json:"hostNetwork,omitempty"`
	OS                           *corev1.PodOS     `json:"os,omitempty"`
	NodeSelector                 map[string]string `json:"nodeSelector,omitempty"`
	ActiveDeadlineSeconds        *int64            `json:"activeDeadlineSeconds,omitempty"`
	PriorityClassName            string            `json:"priorityClassName,omitempty"`
	Resources                    *Requirements     `json:"resources,omitempty"` // of the pod as a whole
	Overhead                     QuantityTexts     `json:"overhead,omitempty"`
	Volumes                      []Volume          `json:"volumes,omitempty"`
	InitContainers               []PodContainer    `json:"initContainers,omitempty"`
	Containers                   []PodContainer    `json:"containers,omitempty"`
}

// PodContainer is part of a container.
type PodContainer struct {
	Name          string                        `json:"name"`
	RestartPolicy corev1.ContainerRestartPolicy `json:"restartPolicy,omitempty"`
	Resources     Requirements                  `json:"resources,omitempty"`
	Env           []Variable                    `json:"env,omitempty"`
	EnvFrom       []struct{}                    `json:"envFrom,omitempty"` // only their number matters
	VolumeMounts  []corev1.VolumeMount          `json:"volumeMounts,omitempty"`
	Ports         []corev1.ContainerPort        `json:"ports,omitempty"`
}

// Variable is part of an EnvVar.
type Variable struct {
	Name      string    `json:"name"`
	Value     string    `json:"value,omitempty"`
	ValueFrom *struct{} `json:"valueFrom,omitempty"` // nil: there is none
}

// Volume is part of a volume.
type Volume struct {
	Name      string     `json:"name"`
	Projected *Projected `json:"projected,omitempty"`
}

// Projected is part of a ProjectedVolumeSource.
type Projected struct {
	Sources []ProjectedSource `json:"sources,omitempty"`
}

// ProjectedSource is part of a VolumeProjection.
type ProjectedSource struct {
	ServiceAccountToken *corev1.ServiceAccountTokenProjection `json:"serviceAccountToken,omitempty"`
	ConfigMap           *NamedSource                          `json:"configMap,omitempty"`
	DownwardAPI         *NamedSource                          `json:"downwardAPI,omitempty"`
	ClusterTrustBundle  *PathSource                           `json:"clusterTrustBundle,omitempty"`
}

// NamedSource is part of a ConfigMapProjection or a DownwardAPIProjection.
type NamedSource struct {
	Name  string       `json:"name,omitempty"`
	Items []PathSource `json:"items,omitempty"`
}

// PathSource is part of a KeyToPath, a DownwardAPIVolumeFile or a ClusterTrustBundleProjection.
type PathSource struct {
	Path string `json:"path"`
}

// Requirements are ResourceRequirements whose quantities are not parsed yet.
type Requirements struct {
	Requests QuantityTexts `json:"requests,omitempty"`
	Limits   QuantityTexts `json:"limits,omitempty"`
}

// QuantityTexts are a ResourceList.
type QuantityTexts map[string]QuantityText

// QuantityText is the text of a quantity, which JSON may have as a string or a number.
type QuantityText string

// UnmarshalJSON implements json.Unmarshaler. It accepts texts that are no quantities, which parse
// refuses.
func (a *QuantityText) UnmarshalJSON(text []byte) error {
	*a = QuantityText(strings.Trim(string(text), `"`))
	return nil
}

// resourceLimit bounds how many resources a list may name.
const resourceLimit = 32

// parse parses quantities.
func (a QuantityTexts) parse() (corev1.ResourceList, error) {
	if len(a) > resourceLimit {
		return nil, fmt.Errorf("has %d resources in one list, of at most %d", len(a), resourceLimit)
	}
	list := corev1.ResourceList{}
	for name, text := range a {
		q, err := quantity.Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("has %q of %s: %w", text, name, err)
		}
		list[corev1.ResourceName(name)] = q
	}
	return list, nil
}

func (r Requirements) parse() (all corev1.ResourceRequirements, err error) {
	if all.Requests, err = r.Requests.parse(); err != nil {
		return all, err
	}
	all.Limits, err = r.Limits.parse()
	return all, err
}

// newPod makes a pod with the resources and the scheduling of a template, and nothing else.
func (t *Template) newPod() (*corev1.Pod, error) {
	spec := &t.Spec
	pod := &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: spec.ActiveDeadlineSeconds,
		PriorityClassName: spec.PriorityClassName}}
	var err error
	if pod.Spec.Overhead, err = spec.Overhead.parse(); err != nil {
		return nil, err
	}
	if pod.Spec.InitContainers, err = parseContainers(spec.InitContainers); err != nil {
		return nil, err
	}
	if pod.Spec.Containers, err = parseContainers(spec.Containers); err != nil || spec.Resources == nil {
		return pod, err
	}
	whole, err := spec.Resources.parse()
	pod.Spec.Resources = &whole
	return pod, err
}

func parseContainers(from []PodContainer) ([]corev1.Container, error) {
	all := make([]corev1.Container, len(from))
	for i, c := range from {
		resources, err := c.Resources.parse()
		if err != nil {
			return nil, err
		}
		all[i] = corev1.Container{Name: c.Name, Resources: resources}
		if c.RestartPolicy != "" {
			all[i].RestartPolicy = &c.RestartPolicy
		}
	}
	return all, nil
}

// decodeTemplate reads a template as the API server does: names of fields are case-sensitive.
func decodeTemplate(text []byte) (*Template, error) {
	t := &Template{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, t); err != nil {
		return nil, Unreadable(err)
	}
	return t, nil
}

// mismatch matches kjson's error about a field of the wrong type, which is of a type internal to
// kjson.
var mismatch = regexp.MustCompile(`^json: cannot unmarshal (\w+).* into Go struct field \w+\.(\S+) of type \S+$`)

// Unreadable is an error of kjson without Go's types.
func Unreadable(err error) error {
	if m := mismatch.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s must not be JSON's %s", m[2], m[1])
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}
