package object_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

// A selector shows an object that leaves what it selects as DELETED, whatever happened to it.
func ExampleSelector_EventFor() {
	pods := object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)
	pod := func(app string, rv int) *object.Object {
		o, err := pods.Parse(fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a",
			"namespace":"default","resourceVersion":"%d","labels":{"app":%q}}}`, rv, app))
		if err != nil {
			panic(err)
		}
		return o
	}
	web := object.NewSelector("default", "", labels.SelectorFromSet(labels.Set{"app": "web"}), nil)
	first, second := pod("web", 7), pod("db", 8)
	for _, event := range []object.Event{
		{New: first, RV: 7},
		{Old: first, New: second, RV: 8},
		{Old: second, RV: 9},
	} {
		kind, o, seen := web.EventFor(&event)
		if !seen {
			fmt.Println("nothing at", event.RV)
			continue
		}
		fmt.Println(kind, o.Key, "at", event.RV)
	}
	// Output:
	// ADDED default/a at 7
	// DELETED default/a at 8
	// nothing at 9
}
