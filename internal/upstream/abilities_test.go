package upstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/fakeapiserver"
)

func TestAbilitiesByRelease(t *testing.T) {
	f := func(release fakeapiserver.Kubernetes, watchList, compression Ability) {
		t.Run(release.Version, func(t *testing.T) {
			t.Parallel()
			_, c := apiserver(t, fakeapiserver.Options{Kubernetes: release})
			if got := c.Abilities(); got != (Abilities{}) {
				t.Errorf("%v before upstream has answered", got)
			}
			if _, err := c.Version(deadline(t)); err != nil {
				t.Fatal(err)
			}
			if err := c.NewProber(configMaps).ProbeAbilities(deadline(t)); err != nil {
				t.Fatal(err)
			}
			if got, want := c.Abilities(), (Abilities{release.Version, release.Version, watchList, compression}); got != want {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
	f(fakeapiserver.Kubernetes133, AbilityAbsent, AbilityUnknown)
	f(fakeapiserver.Kubernetes136, AbilityPresent, AbilityAbsent)
	f(fakeapiserver.Kubernetes137, AbilityPresent, AbilityPresent)
}

// An API server that is too slow to answer has not said that it lacks anything.
func TestSilenceShowsNoAbility(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{})
	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.NewProber(configMaps).ProbeAbilities(ctx); err == nil {
		t.Error("the probe did not fail")
	}
	if got := c.Abilities(); got != (Abilities{}) {
		t.Errorf("%v", got)
	}
}

// A mirror finds out by its own watch-list whether upstream serves and compresses these, before the
// Sink knows anything.
func TestMirrorLearnsOfWatchLists(t *testing.T) {
	f := func(release fakeapiserver.Kubernetes, watchList, compression Ability) {
		t.Helper()
		_, c := apiserver(t, fakeapiserver.Options{Kubernetes: release})
		sink := newRecorder()
		learnt := make(chan Abilities, 10)
		sink.fail = func(string) error { learnt <- c.Abilities(); return nil }
		mirror(t, c, configMaps, sink)
		if got := <-learnt; got.WatchList != watchList || got.WatchListCompression != compression {
			t.Errorf("%s: %v", release.Version, got)
		}
	}
	f(fakeapiserver.Kubernetes133, AbilityAbsent, AbilityUnknown)
	f(fakeapiserver.Kubernetes136, AbilityPresent, AbilityAbsent)
	f(fakeapiserver.Kubernetes137, AbilityPresent, AbilityPresent)
}

// Two versions behind one address: what the older cannot do counts for as long as it is seen.
func TestLeastAbleVersionCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAbilityRecord()
		can := Abilities{WatchList: AbilityPresent, WatchListCompression: AbilityPresent}
		cannot := can
		cannot.WatchListCompression = AbilityAbsent
		see := func(version string, a Abilities) {
			r.sawVersion(version)
			r.saw(a)
		}
		expect := func(oldest, newest string, compression Ability) {
			t.Helper()
			got := *r.current.Load()
			if got.Oldest != oldest || got.Newest != newest || got.WatchListCompression != compression ||
				got.WatchList != AbilityPresent {
				t.Errorf("%v", got)
			}
		}
		see("v1.36.3", cannot)
		expect("v1.36.3", "v1.36.3", AbilityAbsent)
		for range 5 {
			time.Sleep(mixedVersionsPeriod / 2)
			see("v1.37.1", can)
			expect("v1.36.3", "v1.37.1", AbilityAbsent)
			see("v1.36.3", cannot)
			see("v1.37.1", can)
			expect("v1.36.3", "v1.37.1", AbilityAbsent)
		}
		time.Sleep(mixedVersionsPeriod)
		see("v1.37.1", can)
		expect("v1.37.1", "v1.37.1", AbilityPresent)
		time.Sleep(time.Second)
		see("v1.36.3", cannot) // and back
		expect("v1.36.3", "v1.37.1", AbilityAbsent)
		see("v1.9.0-beta.1+vendor", Abilities{})
		expect("v1.9.0-beta.1+vendor", "v1.37.1", AbilityAbsent)
	})
}
