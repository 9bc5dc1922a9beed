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

// Annotations of pods, and so of pod templates. Whatever else has their prefix is refused: it is
// surely a slip.
const (
	prefix = "spillway/"

	// OptAnnotation is also the label by which pods and namespaces are chosen for the webhook.
	OptAnnotation = prefix + "inject"
	OptIn         = "enabled"
	OptOut        = "disabled"

	// InjectedAnnotation is set by Plan, and says that all is done.
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

// settingLimitBytes bounds a setting that a pod brings along, since what is done with it may take
// more time than its length suggests: a flag that is not known is compared with all that are.
const settingLimitBytes = 4 << 10

// Options are what sidecars are like. A pod's annotations go before them.
type Options struct {
	Image      string
	PullPolicy corev1.PullPolicy // as Kubernetes chooses when empty
	Resources  string            // of --resources
	Flags      []string          // more for the sidecar, --name=value each
	CheckFlags func([]string) error
	Port       int32 // on loopback
	HealthPort int32 // for the kubelet

	// None when empty. The limit of CPU is empty by default: a process that has reached it is stopped
	// for the rest of a tenth of a second, which delays every event. Where a rule or the pod makes
	// one necessary, it is usualLimit.
	CPURequest, CPULimit, MemoryRequest, MemoryLimit string

	AllowHostNetwork bool

	Place string // among the init containers: PlaceAuto and so on, or after:NAME

	// Admitted says that pods have been through the API server's own admission: they mount the tokens
	// that they are given.
	Admitted bool

	// Rules are those of the pod's namespace; nil: they are not known, and the pod alone decides.
	Rules *limits.Rules

	ownAccount bool // the pod mounts its service account itself, where it wants it
}

// Defaults are options that suit most pods, but for the image, which only the user knows.
func Defaults() Options {
	return Options{Resources: "*", Port: 26443, HealthPort: 26464, Place: PlaceAuto, CPURequest: "50m",
		MemoryRequest: "128Mi"}
}

// Validate finds what no pod could be given.
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
			"must be a port, from 1 to 65535, and another than the first")
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

// isSpace reports what Kubernetes takes for one, which refuses pods whose image has some around it.
func isSpace(r rune) bool { return r <= ' ' || unicode.IsSpace(r) }

// settingError says what is wrong with a setting, which is a flag here and an annotation there.
type settingError struct{ setting, value, remedy string }

func (e *settingError) Error() string { return "--" + e.setting + "=" + e.value + ": " + e.remedy }

func newSettingError(setting, value, remedy string) error {
	return &settingError{setting, value, remedy}
}

// withAnnotations returns the options for a pod.
func (o Options) withAnnotations(template *Template) (Options, error) {
	o.Flags = slices.Clone(o.Flags)
	automount := template.Spec.AutomountServiceAccountToken
	o.ownAccount = automount != nil && !*automount
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
	var w *settingError
	if errors.As(err, &w) {
		err = fmt.Errorf("annotation %s%s: %q: %s", prefix, w.setting, w.value, w.remedy)
	}
	return o, err
}

// set takes one annotation.
func (o *Options) set(name, value string) error {
	for of, to := range map[string]*string{
		ImageAnnotation: &o.Image, ResourcesAnnotation: &o.Resources, PlaceAnnotation: &o.Place,
		CPURequestAnnotation: &o.CPURequest, CPULimitAnnotation: &o.CPULimit, MemoryRequestAnnotation: &o.MemoryRequest,
		MemoryLimitAnnotation: &o.MemoryLimit,
	} {
		if name == of {
			*to = value
			return nil
		}
	}
	var err error
	switch name {
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
	case InjectedAnnotation: // copied from another pod
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
