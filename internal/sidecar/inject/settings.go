package inject

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// setting is one of the Options. A flag sets it for all sidecars, and an annotation for one pod.
type setting struct {
	name       settingName
	field      func(*Options) any // a *string, *[]string, *int32 or *bool
	help       string             // of the flag
	isFlagOnly bool               // there is no annotation
}

// settingName is the name of a setting, and of its flag.
type settingName string

func (n settingName) flag() string { return "--" + string(n) }

func (n settingName) annotation() string { return prefix + string(n) }

const (
	imageSetting         settingName = "image"
	pullPolicySetting    settingName = "image-pull-policy"
	resourcesSetting     settingName = "resources"
	flagsSetting         settingName = "flags"
	portSetting          settingName = "port"
	healthPortSetting    settingName = "health-port"
	cpuRequestSetting    settingName = "cpu-request"
	cpuLimitSetting      settingName = "cpu-limit"
	memoryRequestSetting settingName = "memory-request"
	memoryLimitSetting   settingName = "memory-limit"
	placeSetting         settingName = "place"
	hostNetworkSetting   settingName = "allow-host-network"
)

var settings = []setting{
	{
		name: imageSetting, field: func(o *Options) any { return &o.Image },
		help: "The `image` of sidecars. Nodes must be able to pull it. Required.",
	},
	{
		name: pullPolicySetting, field: func(o *Options) any { return (*string)(&o.PullPolicy) }, isFlagOnly: true,
		help: "Nodes pull the image by this `policy`: Always, IfNotPresent or Never. When empty, Kubernetes chooses.",
	},
	{
		name: resourcesSetting, field: func(o *Options) any { return &o.Resources },
		help: "Sidecars mirror the resources in this comma-separated `list`. It has the form of spillway's own --resources.",
	},
	{
		name: flagsSetting, field: func(o *Options) any { return &o.Flags },
		help: "More flags for sidecars: a comma-separated `list`, such as --history-bytes=8Mi,--log-level=debug. In the " +
			"annotation, spaces separate them.",
	},
	{
		name: portSetting, field: func(o *Options) any { return &o.Port },
		help: "Sidecars serve their pod on this `port` of loopback.",
	},
	{
		name: healthPortSetting, field: func(o *Options) any { return &o.HealthPort },
		help: "Sidecars answer the kubelet's probes on this `port`.",
	},
	{
		name: cpuRequestSetting, field: func(o *Options) any { return &o.CPURequest },
		help: "Each sidecar requests this `quantity` of CPU. When empty, sidecars request none. If the pod requests " +
			"nothing, its sidecar requests nothing, unless the sidecar has a limit.",
	},
	{
		name: cpuLimitSetting, field: func(o *Options) any { return &o.CPULimit },
		help: "Each sidecar is limited to this `quantity` of CPU. A sidecar that reaches its limit delays events. When " +
			"empty, sidecars have a limit only in Guaranteed pods, and with the webhook also in namespaces with a rule " +
			"about CPU.",
	},
	{
		name: memoryRequestSetting, field: func(o *Options) any { return &o.MemoryRequest },
		help: "Each sidecar requests this `quantity` of memory. When empty, sidecars request none. If the pod requests " +
			"nothing, its sidecar requests nothing, unless the sidecar has a limit.",
	},
	{
		name: memoryLimitSetting, field: func(o *Options) any { return &o.MemoryLimit },
		help: "Each sidecar is limited to this `quantity` of memory, which is its memory budget. When empty, sidecars " +
			"have a limit only in Guaranteed pods, and with the webhook also in namespaces with a rule about memory.",
	},
	{
		name: placeSetting, field: func(o *Options) any { return &o.Place },
		help: "The `place` of sidecars among the init containers: first, last, after:NAME, or auto. auto is behind the " +
			"proxy of a service mesh, if that is a native sidecar, and otherwise first. Init containers in front of a " +
			"sidecar do not go through it.",
	},
	{
		name: hostNetworkSetting, field: func(o *Options) any { return &o.AllowHostNetwork },
		help: "Also add sidecars to pods in the network of their node, where the ports must be free. Every process of " +
			"the node can connect to such a sidecar, but gets nothing without a token of the pod's service account.",
	},
}

// AddFlags declares the flags of the settings, whose defaults are o.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	for _, s := range settings {
		switch field := s.field(o).(type) {
		case *string:
			flags.StringVar(field, string(s.name), *field, s.help)
		case *[]string:
			flags.StringSliceVar(field, string(s.name), *field, s.help)
		case *int32:
			flags.Int32Var(field, string(s.name), *field, s.help)
		case *bool:
			flags.BoolVar(field, string(s.name), *field, s.help)
		}
	}
}

// annotate sets what an annotation says.
func (o *Options) annotate(name, value string) (err error) {
	if name == OptAnnotation {
		if value != OptIn {
			return fmt.Errorf("must be %s or %s", OptIn, OptOut)
		}
		return nil
	}
	i := slices.IndexFunc(settings, func(s setting) bool { return !s.isFlagOnly && s.name.annotation() == name })
	if i < 0 {
		return fmt.Errorf("there is no such setting")
	}
	switch field := settings[i].field(o).(type) {
	case *string:
		*field = value
	case *[]string:
		*field = append(*field, strings.Fields(value)...)
	case *int32:
		*field, err = parsePort(value)
	case *bool:
		if *field, err = strconv.ParseBool(value); err != nil {
			err = fmt.Errorf("must be true or false")
		}
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
