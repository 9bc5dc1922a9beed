package memory

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/zap"
)

// The metrics are there with a guard and without, and follow the conventions.
func TestMemoryMetrics(t *testing.T) {
	restored(t)
	none := func() int64 { return 0 }
	limit := SetLimit(1 << 40)
	if limit == nil {
		t.Skip("GOMEMLIMIT is off")
	}
	guards := map[*Guard]int{nil: 3, NewGuard(limit, nil, nil, zap.NewNop()): 4 + 2*3}
	for guard, series := range guards {
		registry := prometheus.NewRegistry()
		registry.MustRegister(NewCollector(guard, none, none))
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%v %v", problems, err)
		}
		n := 0
		for _, f := range families {
			n += len(f.GetMetric())
		}
		if n != series {
			t.Errorf("%d series, want %d", n, series)
		}
	}
}
