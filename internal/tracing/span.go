package tracing

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"spillway/internal/auth"
)

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

// Asks says what the request is for. The span is named as kube-apiserver's.
func (s *Span) Asks(method string, what auth.Attributes) {
	if s == nil {
		return
	}
	s.span.SetName(nameOf(method, what))
	told := []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(clean(method))}
	for _, a := range []struct{ key, value string }{
		{"verb", what.Verb}, {"group", what.Group}, {"version", what.Version},
		{"resource", what.Resource}, {"subresource", what.Subresource}, {"namespace", what.Namespace},
	} {
		if a.value != "" {
			told = append(told, attribute.String(a.key, clean(a.value)))
		}
	}
	s.span.SetAttributes(told...)
}

// nameOf is the name of a request's span: its method and path, where what clients make up is left
// out.
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
	return strings.ToValidUTF8(text[:min(len(text), valueMost)], "\uFFFD")
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
	told := []attribute.KeyValue{semconv.HTTPResponseStatusCode(a.Code), attribute.String("source", a.Source)}
	if a.Bytes >= 0 {
		told = append(told, semconv.HTTPResponseBodySizeKey.Int64(a.Bytes))
	}
	if a.AuditID != "" {
		told = append(told, attribute.String("audit-id", clean(a.AuditID)))
	}
	s.span.SetAttributes(told...)
	if a.Code >= http.StatusInternalServerError {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}
