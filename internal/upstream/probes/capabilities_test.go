package probes

import (
	"context"
	"strings"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
	"spillway/internal/upstream/capabilities"
	"spillway/internal/upstream/upstreamtest"
)

func TestCapabilitiesByRelease(t *testing.T) {
	f := func(release fakeapiserver.Kubernetes, watchList, compression capabilities.Capability) {
		t.Run(release.Version, func(t *testing.T) {
			t.Parallel()
			_, c := upstreamtest.NewServer(t, fakeapiserver.Options{Kubernetes: release})
			if got := c.Capabilities(); got != (capabilities.Summary{}) {
				t.Errorf("%v before upstream has answered", got)
			}
			if _, err := c.Version(deadline(t)); err != nil {
				t.Fatal(err)
			}
			if err := New(c, configMaps).ProbeCapabilities(deadline(t)); err != nil {
				t.Fatal(err)
			}
			want := capabilities.Summary{Oldest: release.Version, Newest: release.Version, WatchList: watchList,
				WatchListCompression: compression}
			if got := c.Capabilities(); got != want {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
	f(fakeapiserver.Kubernetes133, capabilities.Absent, capabilities.Unknown)
	f(fakeapiserver.Kubernetes136, capabilities.Present, capabilities.Absent)
	f(fakeapiserver.Kubernetes137, capabilities.Present, capabilities.Present)
}

// Upstream need not look at all objects of a resource for a probe: it names one key.
func TestCapabilityProbeNamesOneKey(t *testing.T) {
	for resource, path := range map[*object.Resource]string{
		configMaps: "/api/v1/namespaces/default/configmaps",
		widgets:    "/apis/example.com/v1/namespaces/default/widgets",
		nodes:      "/api/v1/nodes",
	} {
		s, c := upstreamtest.NewServer(t, fakeapiserver.Options{})
		s.Create(resource.GVR, map[bool]string{true: "default"}[resource.Namespaced], "spillway")
		if err := New(c, resource).ProbeCapabilities(deadline(t)); err != nil {
			t.Fatal(err)
		}
		watches := s.RequestsFor(resource.GVR, "watch")
		if len(watches) != 1 || watches[0].Path != path ||
			!strings.HasPrefix(watches[0].Query.Get("fieldSelector"), "metadata.name=spillway,") {
			t.Errorf("%s: probed by %+v", resource, watches)
		}
		if got := c.Capabilities(); got.WatchList != capabilities.Present {
			t.Errorf("%s: %v", resource, got)
		}
	}
}

// An API server that is too slow to answer has not said that it lacks anything.
func TestSilenceShowsNoCapability(t *testing.T) {
	s, c := upstreamtest.NewServer(t, fakeapiserver.Options{})
	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := New(c, configMaps).ProbeCapabilities(ctx); err == nil {
		t.Error("the probe did not fail")
	}
	if got := c.Capabilities(); got != (capabilities.Summary{}) {
		t.Errorf("%v", got)
	}
}
