package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"spillway/internal/kubetest"
)

// Metrics exist for every mirror and follow the conventions.
func TestMirrorMetrics(t *testing.T) {
	up := newUpstream(t)
	up.Create(kubetest.ConfigMaps, "n", "a")
	m := mirroring(t, up, nil, "configmaps", "pods")
	for _, one := range m.all() {
		eventually(t, "a state, and that it is noted", one.comparable)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(newMirrorMetrics(m))
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
		if len(f.GetMetric()) != 2 {
			t.Errorf("%s has %d series", f.GetName(), len(f.GetMetric()))
		}
		one := f.GetMetric()[0]
		values[f.GetName()] = one.GetGauge().GetValue() + one.GetCounter().GetValue()
	}
	for name, want := range map[string]float64{"spillway_mirror_synced": 1, "spillway_mirror_objects": 1, "spillway_upstream_lists_total": 1} {
		if values[name] != want {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
	}
}
