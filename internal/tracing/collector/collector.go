// Package collector is an OpenTelemetry collector for tests: it keeps the spans that it is sent, or
// hangs.
package collector

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	service "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Collector keeps spans.
type Collector struct {
	service.UnimplementedTraceServiceServer
	Address string

	hangs   chan struct{} // nil: it does not; else until it is closed
	mu      sync.Mutex
	spans   []*otlp.Span
	sources []*common.KeyValue
}

// New is a collector that lasts as long as the test.
func New(t testing.TB) *Collector { return start(t, &Collector{}) }

// Hanging is one that answers nothing.
func Hanging(t testing.TB) *Collector { return start(t, &Collector{hangs: make(chan struct{})}) }

func start(t testing.TB, c *Collector) *Collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Address = listener.Addr().String()
	server := grpc.NewServer()
	service.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		if c.hangs != nil {
			close(c.hangs)
		}
		server.Stop()
		// which it is if the test ends before it begins
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return c
}

// Export implements the service.
func (c *Collector) Export(_ context.Context, r *service.ExportTraceServiceRequest) (
	*service.ExportTraceServiceResponse, error) {
	if c.hangs != nil {
		<-c.hangs
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		c.sources = append(c.sources, of.GetResource().GetAttributes()...)
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	return &service.ExportTraceServiceResponse{}, nil
}

// Spans are those that came, in their order.
func (c *Collector) Spans() []*otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*otlp.Span(nil), c.spans...)
}

// Sources are the senders of the spans.
func (c *Collector) Sources() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return texts(c.sources)
}

// Attributes are those of a span that are texts, and its numbers by Number.
func Attributes(s *otlp.Span) map[string]string { return texts(s.GetAttributes()) }

func texts(all []*common.KeyValue) map[string]string {
	told := map[string]string{}
	for _, a := range all {
		if text, ok := a.GetValue().GetValue().(*common.AnyValue_StringValue); ok {
			told[a.GetKey()] = text.StringValue
		}
	}
	return told
}

// Number is an attribute of a span that is a number; -1: there is none.
func Number(s *otlp.Span, key string) int64 {
	for _, a := range s.GetAttributes() {
		if number, ok := a.GetValue().GetValue().(*common.AnyValue_IntValue); ok && a.GetKey() == key {
			return number.IntValue
		}
	}
	return -1
}
