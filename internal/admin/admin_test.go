package admin

import (
	"context"
	"errors"
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

func TestHealthEndpoints(t *testing.T) {
	podsErr := errors.New("still listing:\nconnection refused")
	h := &health.Checks{}
	h.Require("pods", func() (string, error) { return "3 objects at resourceVersion 17", podsErr })
	h.Require("upstream", func() (string, error) { return "", nil })
	handler := (&Endpoints{Health: h, Registry: NewRegistry(), Log: zap.NewNop()}).handler(false)
	f := func(target string, wantCode int, wantBody string) {
		t.Helper()
		if code, body := get(handler, target); code != wantCode || body != wantBody {
			t.Errorf("GET %s = %d\n%s\nwant %d\n%s", target, code, body, wantCode, wantBody)
		}
	}
	f("/livez", 200, "ok")
	f("/livez?verbose", 200, "[+]ping ok\nlivez check passed\n")
	f("/readyz", 500, "[+]shutdown ok\n[-]pods failed: still listing: connection refused\n[+]upstream ok\nreadyz check failed\n")

	podsErr = nil
	f("/readyz", 200, "ok")
	f("/readyz?verbose", 200, "[+]shutdown ok\n[+]pods ok: 3 objects at resourceVersion 17\n[+]upstream ok\nreadyz check passed\n")

	h.Describe(func() []string { return []string{"[!]mirror widgets refused for 3s"} })
	h.Require("apiserver", func() (string, error) { return "", health.Notice("away") })
	f("/readyz", 200, "ok")
	f("/readyz?verbose", 200, "[+]shutdown ok\n[+]pods ok: 3 objects at resourceVersion 17\n[+]upstream ok\n[!]apiserver: away\n"+
		"[!]mirror widgets refused for 3s\nreadyz check passed\n")
	if err := h.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}

	h.Drain()
	h.Drain()
	f("/readyz?verbose", 500, "[-]shutdown failed: draining before the process ends\n[+]pods ok: 3 objects at resourceVersion 17\n"+
		"[+]upstream ok\n[!]apiserver: away\n[!]mirror widgets refused for 3s\nreadyz check failed\n")
	if err := h.Ready(); err == nil || !strings.Contains(err.Error(), "draining before the process ends") {
		t.Errorf("ready while draining: %v", err)
	}
	f("/livez", 200, "ok")
}

func TestWhatIsServedWhere(t *testing.T) {
	registry := NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "spillway_test"}, func() float64 { return 7 }))
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
		{false, false, "/metrics", 403, "not on loopback"},
		{false, true, "/debug/pprof/", 403, "not on loopback"},
		{false, false, "/", 403, "not on loopback"},
	}
	for _, tt := range tests {
		handler := (&Endpoints{Health: &health.Checks{}, Registry: registry, Debug: tt.debug, Log: zap.NewNop()}).handler(tt.trusted)
		if code, body := get(handler, tt.target); code != tt.code || !strings.Contains(body, tt.body) {
			t.Errorf("GET %s (trusted %v, debug %v) = %d %q, want %d with %q", tt.target, tt.trusted, tt.debug, code, body, tt.code, tt.body)
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
	err = (&Endpoints{Health: &health.Checks{}, Registry: NewRegistry(), Log: zap.NewNop()}).Serve(context.Background(), listener)
	if err == nil || !strings.HasPrefix(err.Error(), "metrics listener 127.0.0.1:") {
		t.Errorf("run = %v", err)
	}
}

// Exemplars are told to who asks for OpenMetrics, and without any all get the format of old.
func TestExemplars(t *testing.T) {
	registry := prometheus.NewRegistry()
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took_seconds", Help: "Time.", Buckets: []float64{1}})
	registry.MustRegister(took)
	took.(prometheus.ExemplarObserver).ObserveWithExemplar(0.5, prometheus.Labels{"trace_id": "abc"})
	for exemplars, want := range map[bool]string{true: `took_seconds_bucket{le="1.0"} 1 # {trace_id="abc"} 0.5`, false: `took_seconds_bucket{le="1"} 1` + "\n"} {
		handler := (&Endpoints{Health: &health.Checks{}, Registry: registry, Exemplars: exemplars, Log: zap.NewNop()}).handler(true)
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("exemplars %t: %s", exemplars, w.Body)
		}
	}
}
