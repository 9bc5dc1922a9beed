package tracing

import (
	"context"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/internal/auth"
	"spillway/internal/tracing"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// A running proxy sends a span of a LIST from memory when it ends, at the latest, and it says what
// the LIST was.
func TestLastSpansAreSentAtTheEnd(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	to := startCollector(t)
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: 1000000\n" +
		"endpoint: " + to.address + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+cp.Kubeconfig(controlplane.Admin),
		"--listen-identity=self", "--resources=configmaps", "--tracing-config-file="+file)
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	const target = "/api/v1/namespaces/kube-system/configmaps?resourceVersion=0"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, proxy.Plain+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	trace := "0af7651916cd43dd8448eb211c80319c"
	r.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("it answers %s", response.Status)
	}
	proxy.Stop()
	spans := to.kept()
	if len(spans) != 1 {
		t.Fatalf("%d spans: %v", len(spans), spans)
	}
	got := spans[0]
	values := texts(got.GetAttributes())
	if got.GetName() != "GET /api/v1/namespaces/{:namespace}/configmaps" || values["source"] != "memory" ||
		values["http.response.status_code"] != "200" || len(got.GetLinks()) != 1 ||
		hex.EncodeToString(got.GetLinks()[0].GetTraceId()) != trace {
		t.Errorf("%v", got)
	}
	if from := to.senders(); from["service.name"] != "spillway" || from["service.instance.id"] == "" {
		t.Errorf("from %v", from)
	}
}

// What a client makes up neither keeps spans from being sent nor makes them large.
func TestSpanOfAnOddRequest(t *testing.T) {
	to, all := startCollector(t), int32(1e6)
	config := &tracing.Config{Endpoint: &to.address, SamplingRatePerMillion: &all}
	exporter, err := tracing.NewExporter(config, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	tracer := tracing.New(config, "replica-0", exporter)
	span := tracer.Start(time.Now(), nil, false)
	span.Describe("G\xffT", auth.Attributes{Verb: "get", Version: "v1", Resource: "pods\xff", Name: "secretive",
		Namespace: strings.Repeat("n", 10_000)})
	span.End(tracing.SpanResult{Code: 503, Source: "memory", Bytes: -1, AuditID: "\xc3\x28"})
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	spans := to.kept()
	if len(spans) != 1 {
		t.Fatalf("%d spans", len(spans))
	}
	got, values := spans[0], texts(spans[0].GetAttributes())
	if got.Name != "G\uFFFDT /api/v1/namespaces/{:namespace}/pods\uFFFD/{:name}" ||
		len(values["namespace"]) != 256 {
		t.Errorf("%s: %v", got.Name, got)
	}
	_, hasSize := values["http.response.body.size"]
	if strings.Contains(got.String(), "secretive") || got.GetStatus().GetCode() == 0 || hasSize {
		t.Errorf("%v", got)
	}
}
