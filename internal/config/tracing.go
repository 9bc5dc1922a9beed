package config

import (
	"github.com/spf13/pflag"

	"spillway/internal/rotation"
	"spillway/internal/tracing"
)

// TracingOptions are the flags of tracing.
type TracingOptions struct {
	File   string          // empty: nothing is traced
	Config *tracing.Config // what File says, made by Validate
}

func (t *TracingOptions) flags(fs *pflag.FlagSet) {
	fs.StringVar(&t.File, "tracing-config-file", t.File,
		"Trace requests as this `file` says (apiserver.config.k8s.io/v1 TracingConfiguration), which may be that of "+
			"the API server: a span for each that is sampled, sent to an OpenTelemetry collector over OTLP/gRPC. /metrics "+
			"then has exemplars, in OpenMetrics. When empty, nothing is traced.")
}

// validateTracing refuses configurations that kube-apiserver would refuse.
func (o *Settings) validateTracing() error {
	t := &o.Tracing
	if t.File == "" {
		return nil
	}
	text, err := rotation.ReadFile(t.File)
	if err != nil {
		return o.Refuse("tracing-config-file", t.File, "cannot be read: "+Cause(err))
	}
	if t.Config, err = tracing.ParseConfig(text); err != nil {
		return o.Refuse("tracing-config-file", t.File, "is no tracing configuration: "+err.Error())
	}
	return nil
}
