package cache

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"spillway/internal/object"
)

// TestEstimatesAreExactWithinTheirLimits compares estimates with complete scans, of a state that is
// small enough for the estimates to be exact, and of one that is not.
func TestEstimatesAreExactWithinTheirLimits(t *testing.T) {
	odd, err := labels.Parse("odd=1")
	if err != nil {
		t.Fatal(err)
	}
	selectors := map[string]object.Selector{
		"everything":       {},
		"a namespace":      object.NewSelector("a", "", nil, nil),
		"an object":        object.NewSelector("a", "7", nil, nil),
		"a label":          object.NewSelector("", "", odd, nil),
		"both":             object.NewSelector("b", "", odd, nil),
		"an indexed field": onNode("", "n0", ""),
		"all three":        onNode("a", "n0", "odd=1"),
	}
	for _, c := range []struct {
		objects        int
		leastBytesPart float64 // of what is selected; the estimate has as much at least, and no more than its inverse
		exactCount     bool
	}{{1000, 1, true}, {2 * countedObjectsLimit, 0.95, false}} {
		r := newPods(unlimited)
		var all []*object.Object
		for i := range c.objects {
			namespace := []string{"a", "b"}[i/2%2]
			all = append(all, placed(t, namespace, fmt.Sprint(i), []string{"n0", "n1", "n2"}[i%3], uint64(i+1)))
		}
		_ = r.Replace(all, uint64(len(all)))
		state := r.Snapshot()
		for name, sel := range selectors {
			var bytes int64
			count := 0
			state.Scan(sel, "", func(o *object.Object) bool {
				bytes, count = bytes+int64(o.Size()), count+1
				return true
			})
			got := float64(state.EstimateBytes(sel))
			if got < c.leastBytesPart*float64(bytes) || got > float64(bytes)/c.leastBytesPart {
				t.Errorf("%s of %d objects: estimated %.0f bytes of %d", name, c.objects, got, bytes)
			}
			n := state.CountSelected(sel, "", c.objects)
			if n > count || c.exactCount && n != count || n < min(count, countedObjectsLimit/4) {
				t.Errorf("%s of %d objects: counted %d of %d", name, c.objects, n, count)
			}
			if n := state.CountSelected(sel, "", 5); n != min(count, 5) {
				t.Errorf("%s of %d objects: counted %d of 5", name, c.objects, n)
			}
		}
	}
}

// TestEstimatesMatchFewObjects shows that an object behind so many others that do not match is not
// looked for, whether or not an index has all of them.
func TestEstimatesMatchFewObjects(t *testing.T) {
	odd, err := labels.Parse("odd=1")
	if err != nil {
		t.Fatal(err)
	}
	r := newPods(unlimited)
	var all []*object.Object
	for i := range countedObjectsLimit {
		all = append(all, placed(t, "a", fmt.Sprint(i), "", uint64(2*i+2)))
	}
	all = append(all, placed(t, "b", "last", "", uint64(2*countedObjectsLimit+1)))
	_ = r.Replace(all, uint64(2*countedObjectsLimit+1))
	state := r.Snapshot()
	for name, sel := range map[string]object.Selector{
		"a label":          object.NewSelector("", "", odd, nil),
		"an indexed field": onNode("", "", "odd=1"),
	} {
		if keys := keysOf(state, sel, ""); len(keys) != 1 {
			t.Fatalf("%s selects %v; want the last object", name, keys)
		}
		if n, size := state.CountSelected(sel, "", 5), state.EstimateBytes(sel); n != 0 || size != 0 {
			t.Errorf("%s: counted %d, estimated %d bytes; want nothing of the first objects", name, n, size)
		}
	}
}
