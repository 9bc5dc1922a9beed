package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"spillway/internal/tracing"
	"spillway/internal/tracing/collector"
)

const tracingKind = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"

// What is no configuration is refused with the reason, and what is one is read.
func TestTracingConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "is no tracing configuration: it does not say apiVersion",
		tracingKind + "endpoint: http://c\n": "is no tracing configuration: endpoint: ",
		tracingKind + "samplingRatePerMillion: -1": "is no tracing configuration: samplingRatePerMillion: ",
		tracingKind + "endpoint: c:4317\n":         "",
	} {
		file := writeFile(t, "tracing.yaml", text)
		got := start(nil, "--tracing-config-file="+file)
		if want == "" {
			if got.code != 0 || got.options == nil || *got.options.tracing.config.Endpoint != "c:4317" {
				t.Errorf("%q: %+v", text, got)
			}
			continue
		}
		if got.code == 0 || !strings.HasPrefix(got.stderr, "spillway: --tracing-config-file="+file+": "+want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%q: %q", text, got.stderr)
		}
	}
	if got := start(nil, "--tracing-config-file=/nowhere"); got.code == 0 || got.stderr != "spillway: --tracing-config-file=/nowhere: cannot be read: no such file or directory\n" {
		t.Errorf("%+v", got)
	}
	if got := start(nil); got.code != 0 || got.options.tracing.config != nil {
		t.Errorf("by default: %+v", got)
	}
}

// The end of the process sends what is left, and waits for no collector for long.
func TestLastSpans(t *testing.T) {
	takes, hangs := collector.New(t), collector.Hanging(t)
	for _, c := range []*collector.Collector{takes, hangs} {
		o, all := newOptions(), int32(1e6)
		o.tracing.config = &tracing.Config{Endpoint: &c.Address, SamplingRatePerMillion: &all}
		traces, err := newTracing(o, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		traces.tracer.Start(time.Now(), nil, false).End(tracing.Answer{Code: 200})
		if c == takes {
			if err := traces.tracer.Close(t.Context()); err != nil { // which waits as long as it takes
				t.Error(err)
			}
			continue
		}
		traces.close() // returns, though nobody takes anything
	}
	if len(takes.Spans()) != 1 {
		t.Errorf("%d spans", len(takes.Spans()))
	}
}
