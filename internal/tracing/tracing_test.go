package tracing

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"spillway/internal/testutil"
)

const (
	namedTrace  = "0af7651916cd43dd8448eb211c80319c"
	namedSpan   = "b7ad6b7169203331"
	sampledHere = "00-" + namedTrace + "-" + namedSpan + "-01"
	ignoredHere = "00-" + namedTrace + "-" + namedSpan + "-00"
)

// begin makes a Tracer that samples so many requests in a million.
func begin(rate int32, to sdk.SpanExporter) *Tracer {
	return New(&Config{SamplingRatePerMillion: &rate}, "replica-0", to)
}

// memory keeps spans, also after its end.
type memory struct{ tracetest.InMemoryExporter }

func (*memory) Shutdown(context.Context) error { return nil }

// A trace context is read only of a user that is trusted with it.
func TestParents(t *testing.T) {
	for _, c := range []struct {
		name, parent     string
		trusted          bool
		rate             int32
		sampled, belongs bool
	}{
		{"no trace is named", "", false, 0, false, false},
		{"no trace is named, all are sampled", "", false, 1e6, true, false},
		{"sampled, of a trusted user", sampledHere, true, 0, true, true},
		{"sampled, of a stranger", sampledHere, false, 0, false, false},
		{"sampled, of a stranger, all are sampled", sampledHere, false, 1e6, true, false},
		{"not sampled, of a trusted user, all are sampled", ignoredHere, true, 1e6, false, false},
		{"malformed", "00-xyz-01", true, 0, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := &memory{}
			tracer := begin(c.rate, to)
			header := http.Header{traceState: {"vendor=1"}}
			if c.parent != "" {
				header.Set(traceParent, c.parent)
			}
			span := tracer.Start(time.Now(), header, c.trusted)
			if (span != nil) != c.sampled {
				t.Fatalf("sampled: %t", span != nil)
			}
			span.Propagate(header)
			span.End(SpanResult{Code: 200})
			if err := tracer.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			spans := to.GetSpans()
			if !c.sampled {
				if len(spans) > 0 || header.Get(traceParent) != c.parent || header.Get(traceState) == "" {
					t.Errorf("%v, %v", spans, header)
				}
				return
			}
			if len(spans) != 1 {
				t.Fatalf("%d spans", len(spans))
			}
			got := spans[0]
			id := got.SpanContext.TraceID().String()
			if belongs := id == namedTrace && got.Parent.SpanID().String() == namedSpan; belongs != c.belongs {
				t.Errorf("belongs to what was named: %t: %v", belongs, got)
			}
			linked := len(got.Links) == 1 && got.Links[0].SpanContext.TraceID().String() == namedTrace
			if linked != (c.parent != "" && !c.belongs) {
				t.Errorf("refers to what was named: %t: %v", linked, got)
			}
			if want := "00-" + id + "-" + got.SpanContext.SpanID().String() + "-01"; header.Get(traceParent) != want ||
				span.TraceID() != id {
				t.Errorf("upstream receives %v, want %s", header, want)
			}
			if kept := header.Get(traceState) != ""; kept != c.belongs {
				t.Errorf("the state of the trace is passed on: %t", kept)
			}
			if from := got.Resource.String(); from != "service.instance.id=replica-0,service.name=spillway" {
				t.Errorf("from %v", from)
			}
		})
	}
}

// A collector that is away or hangs delays neither requests, even with more spans than the queue
// holds, nor Close.
func TestCollectorThatDoesNotAnswer(t *testing.T) {
	for name, endpoint := range map[string]string{"away": testutil.RefusingAddress(t),
		"hangs": testutil.SilentAddress(t)} {
		t.Run(name, func(t *testing.T) {
			to, err := NewExporter(&Config{Endpoint: &endpoint}, func(error) {})
			if err != nil {
				t.Fatal(err)
			}
			tracer := begin(1e6, to)
			began := time.Now()
			for range 10_000 {
				tracer.Start(time.Now(), nil, false).End(SpanResult{Code: 200})
			}
			if took := time.Since(began); took > exportTimeout/2 {
				t.Errorf("the spans took %v", took)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			began = time.Now()
			if err := tracer.Close(ctx); err == nil {
				t.Error("all of it was sent")
			}
			if took := time.Since(began); took > exportTimeout/2 {
				t.Errorf("the end took %v", took)
			}
		})
	}
}

func TestParseConfig(t *testing.T) {
	const kind = "kind: TracingConfiguration\n"
	for text, want := range map[string]string{
		"": "does not say", kind: "does not say", "a: [": "line 1",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: []\n": "EncryptionConfiguration",
		"apiVersion: apiserver.config.k8s.io/v1\n" + kind +
			"samplingRatePerMilion: 1\n": `unknown field "samplingRatePerMilion"`,
		"apiVersion: apiserver.config.k8s.io/v1\n" + kind +
			"samplingRatePerMillion: 1000001\n": "less than or equal to one million",
		"apiVersion: apiserver.config.k8s.io/v1\n" + kind +
			"endpoint: https://collector\n": "unsupported scheme: https",
		"apiVersion: apiserver.config.k8s.io/v1\n" + kind +
			"endpoint: ''\n": "names no collector",
		"apiVersion: apiserver.config.k8s.io/v1\n" + kind:                                                "",
		"apiVersion: apiserver.config.k8s.io/v1beta1\n" + kind + "endpoint: c:1\n":                       "",
		"apiVersion: apiserver.config.k8s.io/v1\n" + kind + "endpoint: c:1\nsamplingRatePerMillion: 9\n": "",
	} {
		got, err := ParseConfig([]byte(text))
		if want == "" {
			if err != nil || strings.Contains(text, "endpoint") != (got.Endpoint != nil) ||
				strings.Contains(text, "Million:") != (got.SamplingRatePerMillion != nil) {
				t.Errorf("%q: %+v, %v", text, got, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
