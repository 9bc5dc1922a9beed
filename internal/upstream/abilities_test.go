package upstream

import (
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
)

// behind is a server whose configmaps are quiet and behind its store.
func behind(t *testing.T, release fakeapiserver.Kubernetes) (*fakeapiserver.Server, *Client) {
	t.Helper()
	s, c := apiserver(t, fakeapiserver.Options{Kubernetes: release, ProofDelay: time.Millisecond})
	s.Create(fakeapiserver.Pods, "a", "elsewhere")
	return s, c
}

func TestAbilitiesByRelease(t *testing.T) {
	const unknown, no, yes = AbilityUnknown, AbilityAbsent, AbilityPresent
	f := func(release fakeapiserver.Kubernetes, watchList, compression, bookmarks, cached Ability) {
		t.Run(release.Version, func(t *testing.T) {
			t.Parallel()
			_, c := behind(t, release)
			if got := c.Abilities(); got != (Abilities{}) {
				t.Errorf("%v before upstream has answered", got)
			}
			if _, err := c.Version(deadline(t)); err != nil {
				t.Fatal(err)
			}
			if err := c.NewProber(configMaps).ProbeAbilities(deadline(t)); err != nil {
				t.Fatal(err)
			}
			got := c.Abilities()
			if got.QuietBookmarks == unknown { // net/http took another connection
				got.QuietBookmarks = bookmarks
			}
			if want := (Abilities{release.Version, release.Version, watchList, compression, bookmarks, cached}); got != want {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
	f(fakeapiserver.Kubernetes130, no, unknown, no, no)
	f(fakeapiserver.Kubernetes133, no, unknown, yes, yes)
	f(fakeapiserver.Kubernetes136, yes, no, yes, yes)
	f(fakeapiserver.Kubernetes137, yes, yes, yes, yes)
}

// A cache that is current says nothing of what a LIST or a bookmark would do.
func TestAbilitiesOfACurrentCacheAreUnknown(t *testing.T) {
	s, c := behind(t, fakeapiserver.Kubernetes130)
	s.Create(configMaps.GVR, "a", "one")
	if err := c.NewProber(configMaps).ProbeAbilities(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if got := c.Abilities(); got.CachedLists != AbilityUnknown || got.QuietBookmarks != AbilityUnknown {
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
	now := time.Now()
	r := newAbilityRecord(func() time.Time { return now })
	can := Abilities{WatchList: AbilityPresent, WatchListCompression: AbilityPresent, CachedLists: AbilityPresent}
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
			got.WatchList != AbilityPresent || got.CachedLists != AbilityPresent {
			t.Errorf("%v", got)
		}
	}
	see("v1.36.3", cannot)
	expect("v1.36.3", "v1.36.3", AbilityAbsent)
	for range 5 {
		now = now.Add(mixedVersionsPeriod / 2)
		see("v1.37.1", can)
		expect("v1.36.3", "v1.37.1", AbilityAbsent)
		see("v1.36.3", cannot)
		see("v1.37.1", can)
		expect("v1.36.3", "v1.37.1", AbilityAbsent)
	}
	now = now.Add(mixedVersionsPeriod)
	see("v1.37.1", can)
	expect("v1.37.1", "v1.37.1", AbilityPresent)
	now = now.Add(time.Second)
	see("v1.36.3", cannot) // and back
	expect("v1.36.3", "v1.37.1", AbilityAbsent)
	see("v1.9.0-beta.1+vendor", Abilities{})
	expect("v1.9.0-beta.1+vendor", "v1.37.1", AbilityAbsent)
}

// A proof that ends without a bookmark shows that quiet resources get none.
func TestProofWithoutBookmarkShowsAnAbility(t *testing.T) {
	eventually(t, "a proof on the connection of its probe", func() bool {
		s, c := behind(t, fakeapiserver.Kubernetes130)
		p := c.NewProber(configMaps)
		if !p.Bookmarks() {
			t.Error("no bookmarks are expected before one failed to come")
		}
		_, probe, err := p.Begin(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		defer probe.Close()
		got, err := probe.Prove(deadline(t), 1)
		if err != nil || got.Bookmark != 0 {
			t.Fatalf("%+v, %v at %d", got, err, s.Revision())
		}
		return !p.Bookmarks()
	})
}

// Where watch-lists are refused, a state is that of a quorum LIST.
func TestStateByList(t *testing.T) {
	for _, release := range []fakeapiserver.Kubernetes{fakeapiserver.Kubernetes130, fakeapiserver.Kubernetes133} {
		s, c := apiserver(t, fakeapiserver.Options{Kubernetes: release})
		one, two := s.Create(configMaps.GVR, "a", "one"), s.Create(configMaps.GVR, "b", "two")
		s.Create(fakeapiserver.Pods, "a", "elsewhere")
		p := c.NewProber(configMaps)
		for range 2 {
			rv, versions, err := p.State(deadline(t))
			if err != nil || rv != s.Revision() || len(versions) != 2 || versions["a/one"] != one || versions["b/two"] != two {
				t.Errorf("%s: %d %v, %v", release.Version, rv, versions, err)
			}
		}
		if n := s.Watches(configMaps.GVR); n.Long+n.Proof != 1 {
			t.Errorf("%s: %+v watch-lists were tried", release.Version, n)
		}
		if got := p.Stats(); got != (ProbeStats{States: 2}) {
			t.Errorf("%+v", got)
		}
	}
}
