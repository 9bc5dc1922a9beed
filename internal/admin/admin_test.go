package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"spillway/internal/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// get answers a GET from handler.
func get(handler http.Handler, target string) (code int, body string) {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w.Code, w.Body.String()
}

func TestWhatIsServedWhere(t *testing.T) {
	registry := NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "spillway_test"}, func() float64 {
		return 7
	}))
	tests := []struct {
		trusted, debug bool
		target         string
		code           int
		body           string // part of it
	}{
		{true, false, "/metrics", 200, "\nspillway_test 7\n"},
		{true, false, "/metrics", 200, "\ngo_goroutines "},
		{true, false, "/", 200, "/metrics\n"},
		{true, false, "/livez", 200, "ok"},
		{true, false, "/debug/pprof/", 404, ""},
		{true, true, "/debug/pprof/", 200, "goroutine"},
		{true, true, "/debug/pprof/goroutine?debug=1", 200, "goroutine profile:"},
		{true, true, "/debug/pprof/cmdline", 200, ""},
		{true, true, "/nothing", 404, ""},
		{false, false, "/livez", 200, "ok"},
		{false, false, "/readyz", 200, "ok"},
		{false, false, "/metrics", 403, "does not authenticate"},
		{false, true, "/debug/pprof/", 403, "does not authenticate"},
		{false, false, "/", 403, "does not authenticate"},
	}
	for _, tt := range tests {
		handler := (&Endpoints{Health: &health.Checks{}, Registry: registry, Debug: tt.debug, Log: zap.NewNop()}).handler(
			tt.trusted)
		if code, body := get(handler, tt.target); code != tt.code || !strings.Contains(body, tt.body) {
			t.Errorf("GET %s (trusted %v, debug %v) = %d %q, want %d with %q", tt.target, tt.trusted, tt.debug, code, body,
				tt.code, tt.body)
		}
	}
}

func TestEndpointsAreServedUntilItsContextEnds(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- (&Endpoints{Health: &health.Checks{}, Registry: NewRegistry(), Log: zap.NewNop()}).Serve(ctx, listener)
	}()

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	response, err := client.Get("http://" + listener.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	if response.StatusCode != 200 {
		t.Errorf("GET /metrics on loopback = %d, want 200", response.StatusCode)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run = %v, want nil", err)
	}
	if conn, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		conn.Close()
		t.Error("still listening after run")
	}
}

func TestServeReportsALostListener(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	err = (&Endpoints{Health: &health.Checks{}, Registry: NewRegistry(), Log: zap.NewNop()}).Serve(context.Background(),
		listener)
	if err == nil || !strings.HasPrefix(err.Error(), "metrics listener 127.0.0.1:") {
		t.Errorf("run = %v", err)
	}
}

// Exemplars are in the OpenMetrics format only; with exemplars off, every scrape gets the text
// format.
func TestExemplars(t *testing.T) {
	registry := prometheus.NewRegistry()
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took_seconds", Help: "Time.", Buckets: []float64{1}})
	registry.MustRegister(took)
	took.(prometheus.ExemplarObserver).ObserveWithExemplar(0.5, prometheus.Labels{"trace_id": "abc"})
	for exemplars, want := range map[bool]string{true: `took_seconds_bucket{le="1.0"} 1 # {trace_id="abc"} 0.5`,
		false: `took_seconds_bucket{le="1"} 1` + "\n"} {
		handler := (&Endpoints{Health: &health.Checks{}, Registry: registry, Exemplars: exemplars,
			Log: zap.NewNop()}).handler(true)
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("exemplars %t: %s", exemplars, w.Body)
		}
	}
}
