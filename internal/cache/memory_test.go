package cache

import (
	"math"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
	"spillway/internal/object/objecttest"
	"spillway/internal/testutil"
)

// A state costs hardly more than the JSON that it is made of.
func TestStateCostsItsJSON(t *testing.T) {
	const objects, most = 20000, 1.2
	info := object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)
	before := testutil.HeapBytes()
	r := New(info, HistoryLimits{HistoryBytes: 1 << 20}, time.Now)
	state := make([]*object.Object, 0, objects)
	var bytes uint64
	for i := range objects {
		raw := objecttest.ClusterPod(i)
		bytes += uint64(len(raw))
		o, err := info.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		state = append(state, o)
	}
	if err := r.Replace(state, math.MaxUint32); err != nil {
		t.Fatal(err)
	}
	ratio := float64(testutil.HeapBytes()-before) / float64(bytes)
	t.Logf("%.3f bytes of heap per byte of JSON, of which an object has %d", ratio, bytes/objects)
	if ratio > most {
		t.Fatalf("the state costs %.3f times its JSON, want at most %.2f", ratio, most)
	}
	runtime.KeepAlive(r)
}
