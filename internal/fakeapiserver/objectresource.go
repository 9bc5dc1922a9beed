package fakeapiserver

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

// ObjectResource is one of the resources that every Server serves, as a client describes it.
func ObjectResource(gvr schema.GroupVersionResource) *object.Resource {
	for _, r := range builtins() {
		if r.GVR == gvr {
			return object.NewResource(gvr, r.Kind, r.Namespaced, !r.Custom)
		}
	}
	panic("BUG: not every Server serves " + gvr.String())
}
