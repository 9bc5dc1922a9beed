package main

import (
	"context"
	"os"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"spillway/internal/config"
	"spillway/internal/rotation"
	"spillway/internal/tracing"
)

// lastSpansTimeout is how long the process waits at its end for the collector to take the last
// spans.
const lastSpansTimeout = 2 * time.Second

// traces makes and sends the spans of the process.
type traces struct {
	tracer *tracing.Tracer // nil: there are none
	log    *zap.Logger
}

// newTracing makes what sends spans, if the settings say so. It logs at most once a minute that
// they cannot be sent.
func newTracing(o *config.Settings, log *zap.Logger) (*traces, error) {
	if o.TracingConfigFile == "" {
		return &traces{}, nil
	}
	var parsed *tracing.Config
	text, err := rotation.ReadFile(o.TracingConfigFile)
	if err == nil {
		parsed, err = tracing.ParseConfig(text)
	}
	if err != nil {
		return nil, o.Refuse("tracing-config-file", o.TracingConfigFile,
			"is no tracing configuration: "+config.Cause(err))
	}
	instance, err := os.Hostname()
	if err != nil {
		log.Warn("spans do not tell which replica they are of", zap.Error(err))
	}
	logged := rate.Sometimes{First: 1, Interval: time.Minute}
	exporter, err := tracing.NewExporter(parsed, func(err error) {
		logged.Do(func() { log.Warn("spans could not be sent", zap.Error(err)) })
	})
	if err != nil {
		return nil, o.Refuse("tracing-config-file", o.TracingConfigFile, err.Error())
	}
	return &traces{tracer: tracing.New(parsed, instance, exporter), log: log}, nil
}

// close sends the spans that are left, for no longer than lastSpansTimeout.
func (t *traces) close() {
	if t.tracer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastSpansTimeout)
	defer cancel()
	if err := t.tracer.Close(ctx); err != nil {
		t.log.Warn("the last spans could not be sent", zap.Error(err))
	}
}
