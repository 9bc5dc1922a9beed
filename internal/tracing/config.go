// Package tracing sends spans of requests to a collector, by OpenTelemetry's OTLP over gRPC. Its
// configuration is kube-apiserver's.
package tracing

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	tracingapi "k8s.io/component-base/tracing/api/v1"
)

// Config says where spans go, and of how many requests there is one.
type Config = tracingapi.TracingConfiguration

// strict refuses what kube-apiserver would: fields that it does not know, and the same one twice.
var strict = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
}()

// ParseConfig reads the file of kube-apiserver's --tracing-config-file: a TracingConfiguration of
// any version that it takes.
func ParseConfig(text []byte) (*Config, error) {
	// Into nothing: a file that does not say what it is would be read into anything else.
	decoded, kind, err := strict.Decode(text, nil, nil)
	if runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) {
		return nil, errors.New("it does not say apiVersion: apiserver.config.k8s.io/v1 and kind: TracingConfiguration")
	}
	if err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " ")) // errors of YAML have several lines
	}
	read, ok := decoded.(*apiserver.TracingConfiguration)
	if !ok {
		return nil, fmt.Errorf("it is a %s", kind.Kind)
	}
	if errs := tracingapi.ValidateTracingConfiguration(&read.TracingConfiguration, nil, nil); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if e := read.Endpoint; e != nil && *e == "" {
		return nil, errors.New(`endpoint: "" names no collector; leave it out for localhost:4317`)
	}
	return &read.TracingConfiguration, nil
}
