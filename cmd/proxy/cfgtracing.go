package main

import (
	"os"

	"github.com/spf13/pflag"

	"spillway/internal/tracing"
)

// tracingOptions are the flags of tracing.
type tracingOptions struct {
	file   string          // empty: nothing is traced
	config *tracing.Config // what file says, made by validate
}

func (t *tracingOptions) flags(fs *pflag.FlagSet) {
	fs.StringVar(&t.file, "tracing-config-file", t.file,
		"Trace requests as this `file` says (apiserver.config.k8s.io/v1 TracingConfiguration), which may be that of the API server: a span for each that "+
			"is sampled, sent to an OpenTelemetry collector over OTLP/gRPC. /metrics then has exemplars, in OpenMetrics. When empty, nothing is traced.")
}

// validateTracing refuses configurations that kube-apiserver would refuse.
func (o *options) validateTracing() error {
	t := &o.tracing
	if t.file == "" {
		return nil
	}
	text, err := os.ReadFile(t.file)
	if err != nil {
		return o.refuse("tracing-config-file", t.file, "cannot be read: "+cause(err))
	}
	if t.config, err = tracing.ParseConfig(text); err != nil {
		return o.refuse("tracing-config-file", t.file, "is no tracing configuration: "+err.Error())
	}
	return nil
}
