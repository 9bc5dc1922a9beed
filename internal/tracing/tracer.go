package tracing

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

const (
	service = "spillway"
	// exportTimeout is how long a collector may take for some spans before they are lost.
	exportTimeout = 10 * time.Second
	// valueMost bounds a value: a path may be as long as the head of a request.
	valueMost = 256
)

// Tracer makes spans, which a goroutine sends. A span that finds the queue full is dropped, so that
// no request waits for a collector.
//
// Not component-base's provider, though it is what kube-apiserver has: that comes with client-go
// and a wrapper of net/http, and cannot be stopped while its collector hangs.
type Tracer struct {
	provider *sdk.TracerProvider
	exporter *otlptrace.Exporter
	tracer   trace.Tracer
}

// New makes a Tracer, which connects with its first spans. instance identifies the replica.
// failed is called with the errors of exports of any Tracer of this process. Close it.
func New(c *Config, instance string, failed func(error)) (*Tracer, error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(failed))
	to := []otlptracegrpc.Option{otlptracegrpc.WithTimeout(exportTimeout)}
	if c.Endpoint != nil {
		to = append(to, otlptracegrpc.WithEndpoint(*c.Endpoint))
	}
	exporter, err := otlptracegrpc.New(context.Background(), append(to, otlptracegrpc.WithInsecure())...)
	if err != nil {
		return nil, fmt.Errorf("making a client of the collector: %w", err)
	}
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = valueMost
	t := &Tracer{exporter: exporter, provider: sdk.NewTracerProvider(
		sdk.WithSampler(sampler(c)),
		sdk.WithBatcher(exporter, sdk.WithExportTimeout(exportTimeout)),
		sdk.WithResource(resource.NewSchemaless(semconv.ServiceName(service), semconv.ServiceInstanceID(instance))),
		sdk.WithRawSpanLimits(limits),
	)}
	t.tracer = t.provider.Tracer(service)
	return t, nil
}

// sampler is kube-apiserver's: what a parent says, or else a share of all, or none.
func sampler(c *Config) sdk.Sampler {
	root := sdk.NeverSample()
	if c.SamplingRatePerMillion != nil && *c.SamplingRatePerMillion > 0 {
		root = sdk.TraceIDRatioBased(float64(*c.SamplingRatePerMillion) / 1e6)
	}
	return sdk.ParentBased(root)
}

// ReadsHeader reports whether a header of a request, by its canonical key, says what trace it
// belongs to.
func ReadsHeader(key string) bool { return key == traceParent || key == traceState }

const (
	traceParent = "Traceparent"
	traceState  = "Tracestate"
)

// Start begins the span of a request that came at a time, with those of its headers that
// ReadsHeader wants; nil: it is not sampled.
//
// As at kube-apiserver, a request belongs to the trace that it names only if its user is trusted.
// Otherwise it begins a trace of its own, which links to that one: so a client cannot have its
// requests sampled, or add to the traces of others.
func (t *Tracer) Start(came time.Time, header http.Header, trusted bool) *Span {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(header))
	options := []trace.SpanStartOption{trace.WithTimestamp(came), trace.WithSpanKind(trace.SpanKindServer)}
	if named := trace.SpanContextFromContext(ctx); named.IsValid() && !trusted {
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: named}))
	}
	_, span := t.tracer.Start(ctx, service, options...)
	if !span.IsRecording() {
		return nil
	}
	return &Span{span}
}

// Close sends what is left, until ctx is done.
func (t *Tracer) Close(ctx context.Context) error {
	err := t.provider.Shutdown(ctx)
	_ = t.exporter.Shutdown(ctx) // breaks off what is still under way; it is closed already if nothing is
	return err
}
