package fanout_test

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/object"
)

// Two cursors of one selector and encoding share a feed: the hub makes each frame once. A third
// client resumes from an older version, and its cursor reads the log.
func Example() {
	pods := object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)
	pod := func(name string, rv int) *object.Object {
		o, err := pods.Parse(fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,`+
			`"namespace":"default","resourceVersion":"%d"}}`, name, rv))
		if err != nil {
			panic(err)
		}
		return o
	}
	r := cache.New(pods, cache.HistoryLimits{HistoryBytes: 1 << 20, HistoryMinAge: time.Minute}, time.Now)
	_ = r.Replace(nil, 5)
	_ = r.Add(pod("a", 6))
	hub := fanout.NewHub(r) // Run dispatches; here Dispatch does, once

	state := r.Snapshot()
	one := hub.ViewFor("").CursorAt(state.Next, state.RV, object.Selector{}, object.Encoding{})
	other := hub.ViewFor("").CursorAt(state.Next, state.RV, object.Selector{}, object.Encoding{})
	late, err := hub.ViewFor("").CursorFromRV(5, object.Selector{}, object.Encoding{})
	if err != nil {
		panic(err)
	}
	hub.Dispatch()
	_ = r.Add(pod("b", 7))
	hub.Dispatch()
	for _, c := range []*fanout.Cursor{one, other, late} {
		frames, err := c.Next()
		fmt.Printf("%s%d %v\n", frames, c.CompleteRV(), err)
		c.Close()
	}
	fmt.Println(hub.Stats().Frames.Load(), "frame for feeds,", hub.Stats().ReplayedFrames.Load(), "from the log")
	// Output:
	// {"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","namespace":"default","resourceVersion":"7"}}}
	// 7 <nil>
	// {"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","namespace":"default","resourceVersion":"7"}}}
	// 7 <nil>
	// {"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"default","resourceVersion":"6"}}}
	// {"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","namespace":"default","resourceVersion":"7"}}}
	// 7 <nil>
	// 1 frame for feeds, 2 from the log
}
