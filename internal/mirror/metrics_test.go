package mirror

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"spillway/internal/fakeapiserver"
	"spillway/internal/mirror/states"
)

// gathered is what a scrape of the mirrors' metrics gets.
func gathered(t *testing.T, m *Set) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(m))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// Metrics exist for every mirror and follow the conventions.
func TestMirrorMetrics(t *testing.T) {
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	m := mirroring(t, up, nil, "configmaps", "pods")
	for _, one := range m.all() {
		eventually(t, "a state, and that it is noted", one.isComparable)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(m))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	values := map[string]float64{}
	for _, f := range families {
		want := 2 // mirrors
		switch f.GetName() {
		case "spillway_mirror_state":
			want = 2 * len(states.Kinds())
		case "spillway_mirror_transitions_total", "spillway_mirror_limit_exceeded_total":
			want = 1 // both became synced
		case "spillway_upstream_info":
			want = 1
		}
		if len(f.GetMetric()) != want {
			t.Errorf("%s has %d series", f.GetName(), len(f.GetMetric()))
		}
		one := f.GetMetric()[0]
		values[f.GetName()] = one.GetGauge().GetValue() + one.GetCounter().GetValue()
	}
	for name, want := range map[string]float64{"spillway_mirror_objects": 1, "spillway_upstream_lists_total": 1} {
		if values[name] != want {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
	}
}
