package serve

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	internal "k8s.io/apiserver/pkg/apis/audit"

	"spillway/internal/apistatus"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/testutil"
	"spillway/internal/tracing"
)

const watchInN = inN + "?watch=1&resourceVersion=0"

// spanMemory keeps spans, also after its end.
type spanMemory struct{ tracetest.InMemoryExporter }

func (*spanMemory) Shutdown(context.Context) error { return nil }

// spanned is a rig that traces so many requests in a million, and what ends the tracing and returns
// the spans. Olga's word on traces is believed.
func spanned(t *testing.T, rate int32, o rigOptions) (*rig, func() tracetest.SpanStubs) {
	t.Helper()
	to := &spanMemory{}
	tracer := tracing.New(&tracing.Config{SamplingRatePerMillion: &rate}, "", to)
	end := func() tracetest.SpanStubs {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = tracer.Close(ctx) // what was not sent is missed
		return to.GetSpans()
	}
	t.Cleanup(func() { end() })
	o.access, o.tracer = true, tracer
	r, _ := audited(t, internal.LevelMetadata, false, o)
	r.reviews.Know("olga", authenticationv1.UserInfo{Username: "olga", Groups: []string{"system:monitoring"}})
	r.reviews.Allow(func(s authorizationv1.SubjectAccessReviewSpec) bool { return s.User == "olga" || aliceInN(s) })
	return r, end
}

// within is the header that puts a request into the nth trace of a client.
func within(n int) rawclient.RequestOption {
	return rawclient.Header("Traceparent", fmt.Sprintf("00-%032x-%016x-01", n, n))
}

// A request with a trusted trace context has a span in that trace, whichever component answers it,
// and upstream receives the span's context. The span has nothing that is secret.
func TestATrustedTraceContextGetsASpan(t *testing.T) {
	t.Parallel()
	r, end := spanned(t, 0, rigOptions{})
	type want struct {
		name, verb, source string
		code               int64
		id                 string
		body               int
	}
	wanted := map[string]want{}
	n := 0
	for base, opts := range front1and2(t, r) {
		ask := func(target string, w want, more ...rawclient.RequestOption) {
			t.Helper()
			n++
			got, err := rawclient.List(deadline(t), base, target,
				append(append(more, opts...), bearing("olga"), within(n))...)
			if err != nil || int64(got.Status) != w.code {
				t.Fatalf("%s: %+v, %v", target, got, err)
			}
			if w.id = got.Header.Get(apistatus.AuditIDHeader); w.source != tracedUpstream {
				w.body = len(got.Body)
			}
			wanted[fmt.Sprintf("%032x", n)] = w
		}
		ask(inN+"?resourceVersion=0", want{name: "GET /api/v1/namespaces/{:namespace}/configmaps", verb: "list",
			source: tracedMemory, code: 200})
		ask(inN+"/a?resourceVersion=0", want{name: "GET /api/v1/namespaces/{:namespace}/configmaps/{:name}", verb: "get",
			source: tracedMemory, code: 200})
		ask(inN+"/b?resourceVersion=0", want{name: "GET /api/v1/namespaces/{:namespace}/configmaps/{:name}", verb: "get",
			source: tracedRejected, code: 404})
		table := rawclient.Header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		// which fakeapiserver has none of
		ask(inN+"?resourceVersion=0", want{name: "GET /api/v1/namespaces/{:namespace}/configmaps", verb: "list",
			source: tracedUpstream, code: 406}, table)
		n++
		id := openWatch(t, base, watchInN, append(opts, bearing("olga"), within(n))...)
		wanted[fmt.Sprintf("%032x", n)] = want{name: "GET /api/v1/namespaces/{:namespace}/configmaps", verb: "watch",
			source: tracedMemory, code: 200, id: id}
	}
	spans := end() // while the watches last
	if len(spans) != len(wanted) {
		t.Errorf("%d spans, want %d", len(spans), len(wanted))
	}
	for i := range spans {
		s := &spans[i]
		told := spanAttributes(s)
		w := wanted[s.SpanContext.TraceID().String()]
		if s.Name != w.name || told["verb"].AsString() != w.verb || told["source"].AsString() != w.source ||
			told["resource"].AsString() != "configmaps" || told["namespace"].AsString() != "n" ||
			told["http.response.status_code"].AsInt64() != w.code ||
			s.Parent.SpanID().String() != s.SpanContext.TraceID().String()[16:] {
			t.Errorf("want %+v, got %v", w, s)
		}
		if w.source != tracedUpstream && (w.id == "" || told["audit-id"].AsString() != w.id) {
			t.Errorf("want %+v, got %v", w, s)
		}
		if body, has := told["http.response.body.size"]; has != (w.body > 0) || body.AsInt64() != int64(w.body) {
			t.Errorf("a body of %v bytes, want %d: %s", body, w.body, s.Name)
		}
		if text := fmt.Sprintf("%+v", *s); strings.Contains(text, "olga") || strings.Contains(text, "resourceVersion") {
			t.Errorf("it tells too much: %s", text)
		}
		if w.source == tracedUpstream && !r.sent(s) {
			t.Errorf("upstream was not told of %v", s)
		}
	}
}

// spanAttributes are the attributes of a span.
func spanAttributes(s *tracetest.SpanStub) map[attribute.Key]attribute.Value {
	told := map[attribute.Key]attribute.Value{}
	for _, a := range s.Attributes {
		told[a.Key] = a.Value
	}
	return told
}

// openWatch opens a watch for the rest of the test, and returns the Audit-Id of its head.
func openWatch(t *testing.T, base, target string, opts ...rawclient.RequestOption) string {
	t.Helper()
	w := rawclient.Watch(deadline(t), base, target, opts...)
	t.Cleanup(w.Close)
	code, header, err := w.Head(deadline(t))
	if err != nil || code != http.StatusOK {
		t.Fatalf("watch %s: %d %v", target, code, err)
	}
	return header.Get(apistatus.AuditIDHeader)
}

// sent reports that a request upstream carried the context of a span.
func (r *rig) sent(s *tracetest.SpanStub) bool {
	want := "00-" + s.SpanContext.TraceID().String() + "-" + s.SpanContext.SpanID().String() + "-01"
	for _, q := range r.up.Requests() {
		if q.Header.Get("Traceparent") == want {
			return true
		}
	}
	return false
}

// What passes through on either way is traced until upstream's answer begins, also if that lasts,
// or there is none.
func TestTracesOfWhatPassesThrough(t *testing.T) {
	t.Parallel()
	r, end := spanned(t, 1e6, rigOptions{})
	want := 0
	for base, opts := range front1and2(t, r) {
		for _, target := range []string{"/api/v1/namespaces/n/nothing", "/version"} {
			if _, err := rawclient.List(deadline(t), base, target, append(opts, within(1))...); err != nil {
				t.Fatal(err)
			}
			want++
		}
		openWatch(t, base, "/api/v1/namespaces/n/pods?watch=1", append(opts, within(1))...) // not mirrored
		want++
	}
	spans := end()
	if len(spans) != want {
		t.Errorf("%d spans, want %d", len(spans), want)
	}
	for i := range spans {
		s := &spans[i]
		told := spanAttributes(s)
		if told["source"].AsString() != tracedUpstream || told["http.response.status_code"].AsInt64() < 200 || !r.sent(s) {
			t.Errorf("%v", s)
		}
		if s.Parent.IsValid() || len(s.Links) != 1 {
			t.Errorf("a stranger's span: %v", s)
		}
	}
}

// A request whose trace context is not trusted is not traced, and the context passes through
// unchanged.
func TestAnUntrustedTraceContextPassesThrough(t *testing.T) {
	t.Parallel()
	r, end := spanned(t, 0, rigOptions{})
	for base, opts := range front1and2(t, r) {
		for _, target := range []string{inN + "?resourceVersion=0", inN + "/a"} {
			got, err := rawclient.List(deadline(t), base, target, append(opts, bearing("alice"), within(7))...)
			if err != nil || got.Status != 200 {
				t.Fatalf("%+v, %v", got, err)
			}
		}
	}
	if spans := end(); len(spans) > 0 {
		t.Errorf("%v", spans)
	}
	kept := 0
	for _, q := range r.up.Requests() {
		if q.Header.Get("Traceparent") == fmt.Sprintf("00-%032x-%016x-01", 7, 7) {
			kept++
		}
	}
	if kept != 2 {
		t.Errorf("upstream was told %d times what the client said, want 2", kept)
	}
}

// The histogram of the durations of LISTs has the trace of a LIST as an exemplar, if it is sampled,
// whichever source answered it.
func TestListDurationsHaveTracesAsExemplars(t *testing.T) {
	t.Parallel()
	for rate, want := range map[int32]bool{0: false, 1e6: true} {
		r, end := spanned(t, rate, rigOptions{})
		r.list(inN+"?resourceVersion=0", bearing("alice"))
		r.list(inN+"?resourceVersion=0", bearing("alice"),
			rawclient.Header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"))
		traces := map[string]bool{}
		for _, s := range end() {
			traces[s.SpanContext.TraceID().String()] = true
		}
		found := 0
		for _, series := range r.series("spillway_list_duration_seconds") {
			for _, bucket := range series.GetHistogram().GetBucket() {
				if e := bucket.GetExemplar(); e != nil {
					if found++; e.GetLabel()[0].GetName() != "trace_id" || !traces[e.GetLabel()[0].GetValue()] {
						t.Errorf("%v is none of %v", e, traces)
					}
				}
			}
		}
		if (found > 0) != want {
			t.Errorf("%d exemplars of LISTs of which %d in a million are sampled", found, rate)
		}
	}
}

// A collector that hangs holds up no answer, and neither does the end of the server wait for it.
func TestCollectorThatHangs(t *testing.T) {
	t.Parallel()
	all, address := int32(1e6), testutil.SilentAddress(t)
	config := &tracing.Config{Endpoint: &address, SamplingRatePerMillion: &all}
	to, err := tracing.NewExporter(config, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	tracer := tracing.New(config, "", to)
	r, _ := audited(t, internal.LevelNone, false, rigOptions{tracer: tracer})
	for range 100 {
		if got := r.list(inN + "/a?resourceVersion=0"); got.Status != 200 {
			t.Fatal(got.Status)
		}
	}
	r.close()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := tracer.Close(ctx); err == nil {
		t.Error("all of it was sent")
	}
}
