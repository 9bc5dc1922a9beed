package tracing

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"

	service "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector is an OpenTelemetry collector that keeps the spans that it is sent.
type collector struct {
	service.UnimplementedTraceServiceServer
	address string

	mu      sync.Mutex
	spans   []*otlp.Span
	sources []*common.KeyValue
}

// startCollector starts one that lasts as long as the test.
func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = listener.Addr().String()
	server := grpc.NewServer()
	service.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		// which it is if the test ends before it begins
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return c
}

// Export implements the service.
func (c *collector) Export(_ context.Context, r *service.ExportTraceServiceRequest) (
	*service.ExportTraceServiceResponse, error) {
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

// kept are the spans that came, in their order.
func (c *collector) kept() []*otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*otlp.Span(nil), c.spans...)
}

// senders are the attributes of what sent the spans.
func (c *collector) senders() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return texts(c.sources)
}

// texts are the values of attributes, as text.
func texts(all []*common.KeyValue) map[string]string {
	values := map[string]string{}
	for _, a := range all {
		switch value := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			values[a.GetKey()] = value.StringValue
		case *common.AnyValue_IntValue:
			values[a.GetKey()] = strconv.FormatInt(value.IntValue, 10)
		}
	}
	return values
}
