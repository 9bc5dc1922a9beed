package cache_test

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/cache"
	"spillway/internal/object"
)

// A reader takes a snapshot, and reads the log from Snapshot.Next on: it misses nothing.
func Example() {
	pods := object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)
	pod := func(name string, rv int) *object.Object {
		o, err := pods.Parse(fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,
			"namespace":"default","resourceVersion":"%d"}}`, name, rv))
		if err != nil {
			panic(err)
		}
		return o
	}
	r := cache.New(pods, cache.HistoryLimits{HistoryBytes: 1 << 20, HistoryMinAge: time.Minute}, time.Now)
	_ = r.Replace([]*object.Object{pod("a", 3)}, 5) // a LIST at resourceVersion 5
	state := r.Snapshot()
	_ = r.Add(pod("b", 6)) // a watch from there
	_ = r.Delete(pod("a", 7))

	state.Scan(object.Selector{}, "", func(o *object.Object) bool {
		fmt.Println("state at", state.RV, "has", o.Key)
		return true
	})
	for position := state.Next; position < r.Log().Head(); position++ {
		entry, ok := r.Log().EntryAt(position)
		if !ok {
			break // the log has moved past the reader
		}
		kind, o, _ := object.Selector{}.EventFor(&entry.Event)
		fmt.Println(kind, o.Key, "at", entry.RV)
	}
	// Output:
	// state at 5 has default/a
	// ADDED default/b at 6
	// DELETED default/a at 7
}
