package main

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/fakeapiserver"
	"spillway/internal/tracing"
)

// The end of the process waits for no collector for long.
func TestLastSpansOfACollectorThatHangs(t *testing.T) {
	o, all, to := config.New(), int32(1e6), fakeapiserver.SilentAddress(t)
	o.Tracing.Config = &tracing.Config{Endpoint: &to, SamplingRatePerMillion: &all}
	traces, err := newTracing(o, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	traces.tracer.Start(time.Now(), nil, false).End(tracing.SpanResult{Code: 200})
	began := time.Now()
	traces.close() // returns, although no collector takes anything
	if took := time.Since(began); took > 2*lastSpansPeriod {
		t.Errorf("it took %v", took)
	}
}
