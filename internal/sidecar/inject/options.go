package inject

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"spillway/internal/domain"
	"spillway/internal/quantity"
)

// prefix begins the annotations of pods, and of pod templates, that Plan reads. It refuses others
// with this prefix, which are surely slips.
const prefix = domain.Domain + "/"

// Annotations beside those of settings.
const (
	// OptAnnotation is also the label by which the chart selects pods and namespaces for the webhook.
	OptAnnotation = prefix + "inject"
	OptIn         = "enabled"
	OptOut        = "disabled"
)

// settingLimitBytes bounds the value of an annotation, because the time that it costs may grow
// faster than its length: an unknown flag is compared with all flags.
const settingLimitBytes = 4 << 10

// Options are the settings of sidecars. The annotations of a pod override them for its own.
type Options struct {
	Image      string
	PullPolicy corev1.PullPolicy // empty: as Kubernetes chooses
	Resources  string            // of --resources
	Flags      []string          // more for the sidecar, each as --name=value
	Port       int32             // on loopback
	HealthPort int32             // for the kubelet

	// Quantities; empty: none. The limit of CPU is empty by default. A process that reaches it is
	// stopped for the rest of a tenth of a second, which delays every event. If a rule or the pod
	// makes a limit necessary, limits.Rules.Size chooses it.
	CPURequest, CPULimit, MemoryRequest, MemoryLimit string

	AllowHostNetwork bool

	Place string // among the init containers: PlaceAuto, PlaceFirst, PlaceLast or after:NAME

	// CheckFlags returns why a sidecar would not start with these flags; nil: they are not checked. It
	// is no setting. Its caller knows the flags of Spillway, and this package does not.
	CheckFlags func(flags []string) error
}

// Defaults are options that suit most pods. They lack the image, which only the user knows.
func Defaults() Options {
	return Options{Resources: "*", Port: 26443, HealthPort: 26464, Place: PlaceAuto, CPURequest: "50m",
		MemoryRequest: "128Mi"}
}

// Validate returns why no pod could have a sidecar with these options.
func (o *Options) Validate() error {
	switch {
	case o.Image == "" || strings.ContainsFunc(o.Image, isSpace):
		return newSettingError(imageSetting, o.Image,
			"must be an image that your nodes can pull, such as registry.example.com/spillway:v1")
	case !slices.Contains([]corev1.PullPolicy{"", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever},
		o.PullPolicy):
		return newSettingError(pullPolicySetting, string(o.PullPolicy), "must be Always, IfNotPresent or Never")
	case o.Resources == "" || strings.ContainsFunc(o.Resources, isSpace):
		return newSettingError(resourcesSetting, o.Resources, "must be a comma-separated list of resources, or *")
	case o.Port < 1 || o.Port > 65535:
		return newSettingError(portSetting, fmt.Sprint(o.Port), "must be a port, from 1 to 65535")
	case o.HealthPort < 1 || o.HealthPort > 65535 || o.HealthPort == o.Port:
		return newSettingError(healthPortSetting, fmt.Sprint(o.HealthPort),
			"must be a port, from 1 to 65535, that the sidecar does not use already")
	}
	if err := validatePlace(o.Place); err != nil {
		return err
	}
	if err := o.validateRequirements(); err != nil {
		return err
	}
	if o.CheckFlags != nil {
		flags := append([]string{"--resources=" + o.Resources}, o.Flags...)
		if err := o.CheckFlags(flags); err != nil {
			return fmt.Errorf("the sidecar's flags: %w", err)
		}
	}
	return nil
}

func (o *Options) validateRequirements() error {
	for _, r := range []struct {
		setting settingName
		value   string
	}{{cpuRequestSetting, o.CPURequest}, {cpuLimitSetting, o.CPULimit}, {memoryRequestSetting, o.MemoryRequest},
		{memoryLimitSetting, o.MemoryLimit}} {
		if q, err := quantity.Parse(r.value); r.value != "" && (err != nil || q.Sign() <= 0) {
			return newSettingError(r.setting, r.value, "must be a quantity above 0, such as 100m or 128Mi")
		}
	}
	r := o.requirements()
	if limit := r.Limits.Cpu(); !limit.IsZero() && limit.Cmp(*r.Requests.Cpu()) < 0 {
		return newSettingError(cpuLimitSetting, o.CPULimit, "must not be below what is requested, which is "+o.CPURequest)
	}
	if limit := r.Limits.Memory(); !limit.IsZero() && limit.Cmp(*r.Requests.Memory()) < 0 {
		return newSettingError(memoryLimitSetting, o.MemoryLimit,
			"must not be below what is requested, which is "+o.MemoryRequest)
	}
	return nil
}

// isSpace reports whether Kubernetes treats a rune as a space. It refuses pods whose image has
// spaces around it.
func isSpace(r rune) bool { return r <= ' ' || unicode.IsSpace(r) }

// settingError says what is wrong with a setting, in the words of its flag.
type settingError struct {
	setting       settingName
	value, remedy string
}

func (e *settingError) Error() string { return e.setting.flag() + "=" + e.value + ": " + e.remedy }

func newSettingError(setting settingName, value, remedy string) error {
	return &settingError{setting, value, remedy}
}

// withAnnotations returns the options for a pod: its annotations override o.
func (o Options) withAnnotations(template *Template) (Options, error) {
	o.Flags = slices.Clone(o.Flags)
	for _, name := range slices.Sorted(maps.Keys(template.Annotations)) {
		if !strings.HasPrefix(name, prefix) || isMark(name) {
			continue
		}
		value := template.Annotations[name]
		if len(value) > settingLimitBytes {
			return o, fmt.Errorf("annotation %s: is %d bytes long: must be at most %d", name, len(value), settingLimitBytes)
		}
		if err := o.annotate(name, value); err != nil {
			return o, fmt.Errorf("annotation %s: %q: %w", name, value, err)
		}
	}
	err := o.Validate()
	var wrong *settingError
	if errors.As(err, &wrong) {
		err = fmt.Errorf("annotation %s: %q: %s", wrong.setting.annotation(), wrong.value, wrong.remedy)
	}
	return o, err
}
