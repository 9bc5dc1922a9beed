package report

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
	"spillway/internal/status"
	"spillway/internal/watch"
)

func TestNamesOfSecretsAreHidden(t *testing.T) {
	f := func(group, resource string, want watch.SelectionText) {
		t.Helper()
		info := &object.Resource{GVR: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}}
		selected := watch.SelectionText{Namespace: "n", Name: "password", Labels: "of=password"}
		if got := redact(info, selected); got != want {
			t.Errorf("%s of %q: %+v, want %+v", resource, group, got, want)
		}
	}
	shown := watch.SelectionText{Namespace: "n", Name: "password", Labels: "of=password"}
	f("", "secrets", watch.SelectionText{Namespace: "n", Name: hidden, Labels: hidden})
	f("", "configmaps", shown)
	f("example.com", "secrets", shown)
}

// The status page highlights the watches that package watch calls paused.
func TestPausedWatchesAreThoseOfTheStatusPage(t *testing.T) {
	if string(watch.Paused) != status.PhasePaused {
		t.Errorf("a watch is %q, and the page highlights %q", watch.Paused, status.PhasePaused)
	}
}
