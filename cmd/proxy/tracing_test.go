package main

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/tracing"
	"spillway/internal/tracing/collector"
)

// The end of the process sends what is left, and waits for no collector for long.
func TestLastSpans(t *testing.T) {
	takes, hangs := collector.New(t), collector.Hanging(t)
	for _, c := range []*collector.Collector{takes, hangs} {
		o, all := config.New(), int32(1e6)
		o.Tracing.Config = &tracing.Config{Endpoint: &c.Address, SamplingRatePerMillion: &all}
		traces, err := newTracing(o, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		traces.tracer.Start(time.Now(), nil, false).End(tracing.SpanResult{Code: 200})
		if c == takes {
			if err := traces.tracer.Close(t.Context()); err != nil { // which waits as long as it takes
				t.Error(err)
			}
			continue
		}
		traces.close() // returns, although no collector takes anything
	}
	if len(takes.Spans()) != 1 {
		t.Errorf("%d spans", len(takes.Spans()))
	}
}
