package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/testutil"
	"spillway/internal/tracing"
)

const tracingKind = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"

// What is no configuration is refused with the reason.
func TestTracingConfigurationIsRefusedWithItsReason(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "is no tracing configuration: it does not say apiVersion",
		tracingKind + "endpoint: http://c\n": "is no tracing configuration: endpoint: ",
		tracingKind + "samplingRatePerMillion: -1": "is no tracing configuration: samplingRatePerMillion: ",
	} {
		o := config.New()
		o.TracingConfigFile = writeFile(t, "tracing.yaml", text)
		_, err := newTracing(o, zap.NewNop())
		if err == nil || !strings.HasPrefix(err.Error(), "--tracing-config-file="+o.TracingConfigFile+": "+want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if none, err := newTracing(config.New(), zap.NewNop()); err != nil || none.tracer != nil {
		t.Errorf("by default: %+v, %v", none, err)
	}
}

// The end of the process waits for no collector for long.
func TestLastSpansOfACollectorThatHangs(t *testing.T) {
	o := config.New()
	o.TracingConfigFile = writeFile(t, "tracing.yaml",
		tracingKind+"endpoint: "+testutil.SilentAddress(t)+"\nsamplingRatePerMillion: 1000000\n")
	traces, err := newTracing(o, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	traces.tracer.Start(time.Now(), nil, false).End(tracing.SpanResult{Code: 200})
	began := time.Now()
	traces.close() // returns, although no collector takes anything
	if took := time.Since(began); took > 2*lastSpansTimeout {
		t.Errorf("it took %v", took)
	}
}
