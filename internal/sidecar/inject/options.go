package inject

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"spillway/internal/quantity"
	"spillway/internal/sidecar/limits"
)

// Annotations of pods and of pod templates. Plan refuses others with their prefix, which are surely
// slips.
const (
	prefix = "spillway/"

	// OptAnnotation is also the label by which the chart selects pods and namespaces for the webhook.
	OptAnnotation = prefix + "inject"
	OptIn         = "enabled"
	OptOut        = "disabled"

	// InjectedAnnotation is added by Plan.
	InjectedAnnotation = prefix + "injected"

	ImageAnnotation         = prefix + "image"
	ResourcesAnnotation     = prefix + "resources"
	FlagsAnnotation         = prefix + "flags"
	PortAnnotation          = prefix + "port"
	HealthPortAnnotation    = prefix + "health-port"
	CPURequestAnnotation    = prefix + "cpu-request"
	CPULimitAnnotation      = prefix + "cpu-limit"
	MemoryRequestAnnotation = prefix + "memory-request"
	MemoryLimitAnnotation   = prefix + "memory-limit"
	HostNetworkAnnotation   = prefix + "allow-host-network"
	PlaceAnnotation         = prefix + "place"
)

// settingLimitBytes bounds the value of an annotation, because the time that it costs may grow
// faster than its length: an unknown flag is compared with all flags.
const settingLimitBytes = 4 << 10

// Options describe sidecars. A pod's annotations override them.
type Options struct {
	Image      string
	PullPolicy corev1.PullPolicy    // empty: as Kubernetes chooses
	Resources  string               // of --resources
	Flags      []string             // more for the sidecar, each as --name=value
	CheckFlags func([]string) error // returns why a sidecar would not start with flags
	Port       int32                // on loopback
	HealthPort int32                // for the kubelet

	// Quantities; empty: none. The limit of CPU is empty by default. A process that reaches it is
	// stopped for the rest of a tenth of a second, which delays every event. If a rule or the pod
	// makes a limit necessary, limits.Rules.Size chooses it.
	CPURequest, CPULimit, MemoryRequest, MemoryLimit string

	AllowHostNetwork bool

	Place string // among the init containers: PlaceAuto, PlaceFirst, PlaceLast or after:NAME

	// Admitted says that pods have passed the API server's own admission, which mounts the tokens of
	// their service accounts.
	Admitted bool

	// Rules are those of the pod's namespace; nil: they are not known.
	Rules *limits.Rules

	// mountsOwnAccount says that the API server mounts no service account: the pod does that itself,
	// or has none. By withAnnotations.
	mountsOwnAccount bool
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
		return newSettingError("image", o.Image,
			"must be an image that your nodes can pull, such as registry.example.com/spillway:v1")
	case !slices.Contains([]corev1.PullPolicy{"", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever},
		o.PullPolicy):
		return newSettingError("image-pull-policy", string(o.PullPolicy), "must be Always, IfNotPresent or Never")
	case o.Resources == "" || strings.ContainsFunc(o.Resources, isSpace):
		return newSettingError("resources", o.Resources, "must be a comma-separated list of resources, or *")
	case o.Port < 1 || o.Port > 65535:
		return newSettingError("port", fmt.Sprint(o.Port), "must be a port, from 1 to 65535")
	case o.HealthPort < 1 || o.HealthPort > 65535 || o.HealthPort == o.Port:
		return newSettingError("health-port", fmt.Sprint(o.HealthPort),
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
	for _, r := range [][2]string{{"cpu-request", o.CPURequest}, {"cpu-limit", o.CPULimit},
		{"memory-request", o.MemoryRequest}, {"memory-limit", o.MemoryLimit}} {
		if q, err := quantity.Parse(r[1]); r[1] != "" && (err != nil || q.Sign() <= 0) {
			return newSettingError(r[0], r[1], "must be a quantity above 0, such as 100m or 128Mi")
		}
	}
	r := o.requirements()
	if limit := r.Limits.Cpu(); !limit.IsZero() && limit.Cmp(*r.Requests.Cpu()) < 0 {
		return newSettingError("cpu-limit", o.CPULimit, "must not be below what is requested, which is "+o.CPURequest)
	}
	if limit := r.Limits.Memory(); !limit.IsZero() && limit.Cmp(*r.Requests.Memory()) < 0 {
		return newSettingError("memory-limit", o.MemoryLimit,
			"must not be below what is requested, which is "+o.MemoryRequest)
	}
	return nil
}

// isSpace reports whether Kubernetes treats a rune as a space. It refuses pods whose image has
// spaces around it.
func isSpace(r rune) bool { return r <= ' ' || unicode.IsSpace(r) }

// settingError says what is wrong with a setting: a flag of this name, or the annotation that
// withAnnotations makes of it.
type settingError struct{ setting, value, remedy string }

func (e *settingError) Error() string { return "--" + e.setting + "=" + e.value + ": " + e.remedy }

func newSettingError(setting, value, remedy string) error {
	return &settingError{setting, value, remedy}
}

// withAnnotations returns the options for a pod: its annotations override o.
func (o Options) withAnnotations(template *Template) (Options, error) {
	o.Flags = slices.Clone(o.Flags)
	automount := template.Spec.AutomountServiceAccountToken
	o.mountsOwnAccount = automount != nil && !*automount
	for _, name := range slices.Sorted(maps.Keys(template.Annotations)) {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		value := template.Annotations[name]
		if len(value) > settingLimitBytes {
			return o, fmt.Errorf("annotation %s: is %d bytes long: must be at most %d", name, len(value), settingLimitBytes)
		}
		if err := o.set(name, value); err != nil {
			return o, fmt.Errorf("annotation %s: %q: %w", name, value, err)
		}
	}
	err := o.Validate()
	var wrong *settingError
	if errors.As(err, &wrong) {
		err = fmt.Errorf("annotation %s%s: %q: %s", prefix, wrong.setting, wrong.value, wrong.remedy)
	}
	return o, err
}

// set sets the option of an annotation.
func (o *Options) set(name, value string) (err error) {
	switch name {
	case ImageAnnotation:
		o.Image = value
	case ResourcesAnnotation:
		o.Resources = value
	case PlaceAnnotation:
		o.Place = value
	case CPURequestAnnotation:
		o.CPURequest = value
	case CPULimitAnnotation:
		o.CPULimit = value
	case MemoryRequestAnnotation:
		o.MemoryRequest = value
	case MemoryLimitAnnotation:
		o.MemoryLimit = value
	case OptAnnotation:
		if value != OptIn {
			return fmt.Errorf("must be %s or %s", OptIn, OptOut)
		}
	case FlagsAnnotation:
		o.Flags = append(o.Flags, strings.Fields(value)...)
	case PortAnnotation:
		o.Port, err = parsePort(value)
	case HealthPortAnnotation:
		o.HealthPort, err = parsePort(value)
	case HostNetworkAnnotation:
		if o.AllowHostNetwork, err = strconv.ParseBool(value); err != nil {
			err = fmt.Errorf("must be true or false")
		}
	case InjectedAnnotation: // a tool copied it from another pod
	default:
		err = fmt.Errorf("there is no such setting")
	}
	return err
}

func parsePort(text string) (int32, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("must be a port, from 1 to 65535")
	}
	return int32(n), nil
}
