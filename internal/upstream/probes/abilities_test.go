package probes

import (
	"context"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/internal/upstream/abilities"
	"spillway/internal/upstream/upstreamtest"
)

func TestAbilitiesByRelease(t *testing.T) {
	f := func(release fakeapiserver.Kubernetes, watchList, compression abilities.Ability) {
		t.Run(release.Version, func(t *testing.T) {
			t.Parallel()
			_, c := upstreamtest.NewServer(t, fakeapiserver.Options{Kubernetes: release})
			if got := c.Abilities(); got != (abilities.Summary{}) {
				t.Errorf("%v before upstream has answered", got)
			}
			if _, err := c.Version(deadline(t)); err != nil {
				t.Fatal(err)
			}
			if err := New(c, configMaps).ProbeAbilities(deadline(t)); err != nil {
				t.Fatal(err)
			}
			want := abilities.Summary{Oldest: release.Version, Newest: release.Version, WatchList: watchList,
				WatchListCompression: compression}
			if got := c.Abilities(); got != want {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
	f(fakeapiserver.Kubernetes133, abilities.Absent, abilities.Unknown)
	f(fakeapiserver.Kubernetes136, abilities.Present, abilities.Absent)
	f(fakeapiserver.Kubernetes137, abilities.Present, abilities.Present)
}

// An API server that is too slow to answer has not said that it lacks anything.
func TestSilenceShowsNoAbility(t *testing.T) {
	s, c := upstreamtest.NewServer(t, fakeapiserver.Options{})
	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := New(c, configMaps).ProbeAbilities(ctx); err == nil {
		t.Error("the probe did not fail")
	}
	if got := c.Abilities(); got != (abilities.Summary{}) {
		t.Errorf("%v", got)
	}
}
