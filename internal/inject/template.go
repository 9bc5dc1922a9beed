package inject

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// Template is what of a pod, or of a pod template, decides whether and how it gets a sidecar. Plan reads nothing else, so nothing else is
// decoded: what a large pod becomes in memory is bounded by its text (see package admission), and no quantity in it is parsed, which can
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
}

// Spec is part of PodSpec.
type Spec struct {
	AutomountServiceAccountToken *bool             `json:"automountServiceAccountToken,omitempty"`
	HostNetwork                  bool              `json:"hostNetwork,omitempty"`
	OS                           *corev1.PodOS     `json:"os,omitempty"`
	NodeSelector                 map[string]string `json:"nodeSelector,omitempty"`
	Volumes                      []Named           `json:"volumes,omitempty"`
	InitContainers               []PodContainer    `json:"initContainers,omitempty"`
	Containers                   []PodContainer    `json:"containers,omitempty"`
}

// PodContainer is part of a container.
type PodContainer struct {
	Name         string                 `json:"name"`
	Env          []Named                `json:"env,omitempty"`
	VolumeMounts []corev1.VolumeMount   `json:"volumeMounts,omitempty"`
	Ports        []corev1.ContainerPort `json:"ports,omitempty"`
}

// Named is the name of something.
type Named struct {
	Name string `json:"name"`
}

// decodeTemplate reads a template as the API server does: names of fields have one spelling.
func decodeTemplate(text []byte) (*Template, error) {
	t := &Template{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, t); err != nil {
		return nil, Unreadable(err)
	}
	return t, nil
}

// mismatch is how kjson says that a field cannot be what it is. The type of that error is internal to kjson.
var mismatch = regexp.MustCompile(`^json: cannot unmarshal (\w+).* into Go struct field \w+\.(\S+) of type \S+$`)

// Unreadable is an error of kjson's in the words of the one who wrote the JSON, who knows no types of Go.
func Unreadable(err error) error {
	if m := mismatch.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s must not be JSON's %s", m[2], m[1])
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}
