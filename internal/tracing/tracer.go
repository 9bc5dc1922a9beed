package tracing

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"spillway/internal/auth"
)

const (
	serviceName = "spillway"
	// exportTimeout is how long a collector may take for some spans before they are lost.
	exportTimeout = 10 * time.Second
	// valueBytesLimit bounds a value: a path may be as long as the head of a request.
	valueBytesLimit = 256
)

// Tracer makes spans, which a goroutine sends. A span that finds the queue full is dropped, so that
// no request waits for a collector.
//
// Not component-base's provider, though it is what kube-apiserver has: that comes with client-go
// and a wrapper of net/http, and cannot be stopped while its collector hangs.
type Tracer struct {
	provider *sdk.TracerProvider
	exporter sdk.SpanExporter
	tracer   trace.Tracer
}

// NewExporter makes what sends spans to the collector, to which it connects with the first of them.
// failed is called with the errors of exports of any Tracer of this process.
func NewExporter(c *Config, failed func(error)) (sdk.SpanExporter, error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(failed))
	to := []otlptracegrpc.Option{otlptracegrpc.WithTimeout(exportTimeout)}
	if c.Endpoint != nil {
		to = append(to, otlptracegrpc.WithEndpoint(*c.Endpoint))
	}
	exporter, err := otlptracegrpc.New(context.Background(), append(to, otlptracegrpc.WithInsecure())...)
	if err != nil {
		return nil, fmt.Errorf("making a client of the collector: %w", err)
	}
	return exporter, nil
}

// New makes a Tracer. instance identifies the replica. Close it.
func New(c *Config, instance string, exporter sdk.SpanExporter) *Tracer {
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = valueBytesLimit
	t := &Tracer{exporter: exporter, provider: sdk.NewTracerProvider(
		sdk.WithSampler(sampler(c)),
		sdk.WithBatcher(exporter, sdk.WithExportTimeout(exportTimeout)),
		sdk.WithResource(resource.NewSchemaless(semconv.ServiceName(serviceName), semconv.ServiceInstanceID(instance))),
		sdk.WithRawSpanLimits(limits),
	)}
	t.tracer = t.provider.Tracer(serviceName)
	return t
}

// sampler is kube-apiserver's: what a parent says, or else a share of all, or none.
func sampler(c *Config) sdk.Sampler {
	root := sdk.NeverSample()
	if c.SamplingRatePerMillion != nil && *c.SamplingRatePerMillion > 0 {
		root = sdk.TraceIDRatioBased(float64(*c.SamplingRatePerMillion) / 1e6)
	}
	return sdk.ParentBased(root)
}

// ReadsHeader reports that a header, by its canonical key, says to what trace a request belongs.
func ReadsHeader(key string) bool { return key == traceParent || key == traceState }

const (
	traceParent = "Traceparent"
	traceState  = "Tracestate"
)

// Start begins the span of a request that arrived at a time, with those of its headers that
// ReadsHeader names. nil: it is not sampled.
//
// As at kube-apiserver, a request belongs to the trace that it names only if its user is trusted.
// Otherwise it begins a trace of its own, which links to that one. So a client can neither have its
// requests sampled nor add to the traces of others.
func (t *Tracer) Start(arrived time.Time, header http.Header, trusted bool) *Span {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(header))
	options := []trace.SpanStartOption{trace.WithTimestamp(arrived), trace.WithSpanKind(trace.SpanKindServer)}
	if named := trace.SpanContextFromContext(ctx); named.IsValid() && !trusted {
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: named}))
	}
	_, span := t.tracer.Start(ctx, serviceName, options...)
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

// Span is the span of one sampled request. It has no attribute for a header, a body, a query or the
// name of an object. The nil Span is that of a request that is not sampled.
type Span struct{ span trace.Span }

// SpanResult is the attributes of an answer.
type SpanResult struct {
	Code    int
	Source  string // memory or upstream
	Bytes   int64  // of its body; negative: not known
	AuditID string // "": not known
}

// Describe names the span as kube-apiserver names its own, and says what the request is for.
func (s *Span) Describe(method string, what auth.Attributes) {
	if s == nil {
		return
	}
	s.span.SetName(nameOf(method, what))
	attributes := []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(clean(method))}
	for _, a := range []struct{ key, value string }{
		{"verb", what.Verb}, {"group", what.Group}, {"version", what.Version},
		{"resource", what.Resource}, {"subresource", what.Subresource}, {"namespace", what.Namespace},
	} {
		if a.value != "" {
			attributes = append(attributes, attribute.String(a.key, clean(a.value)))
		}
	}
	s.span.SetAttributes(attributes...)
}

// nameOf is the name of a request's span: its method and its path without what clients make up.
func nameOf(method string, what auth.Attributes) string {
	if what.Resource == "" {
		return clean(method)
	}
	path := "/api"
	if what.Group != "" {
		path = "/apis/" + what.Group
	}
	path += "/" + what.Version
	if what.Namespace != "" {
		path += "/namespaces/{:namespace}"
	}
	path += "/" + what.Resource
	if what.Name != "" {
		path += "/{:name}"
	}
	if what.Subresource != "" {
		path += "/" + what.Subresource
	}
	return clean(method + " " + path)
}

// clean makes valid UTF-8 of bounded length of a client's text: one invalid attribute would keep
// the whole batch from being encoded.
func clean(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), valueBytesLimit)], "\uFFFD")
}

// TraceID is the id of the trace that the span is of, "" without one.
func (s *Span) TraceID() string {
	if s == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// Propagate puts the span in place of what a request's headers say it belongs to.
func (s *Span) Propagate(header http.Header) {
	if s == nil {
		return
	}
	header.Del(traceParent)
	header.Del(traceState)
	ctx := trace.ContextWithSpanContext(context.Background(), s.span.SpanContext())
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
}

// End ends the span. Only the first call does anything.
func (s *Span) End(a SpanResult) {
	if s == nil {
		return
	}
	attributes := []attribute.KeyValue{semconv.HTTPResponseStatusCode(a.Code), attribute.String("source", a.Source)}
	if a.Bytes >= 0 {
		attributes = append(attributes, semconv.HTTPResponseBodySizeKey.Int64(a.Bytes))
	}
	if a.AuditID != "" {
		attributes = append(attributes, attribute.String("audit-id", clean(a.AuditID)))
	}
	s.span.SetAttributes(attributes...)
	if a.Code >= http.StatusInternalServerError {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}
