package mirror

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apimachinery "k8s.io/apimachinery/pkg/version"

	"spillway/internal/fakeapiserver"
	"spillway/internal/source"
)

// newTestEpochs begins with upstream's present version.
func newTestEpochs(t *testing.T, m *Set) *epochs {
	t.Helper()
	info, err := m.client.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return newEpochs(m, *info)
}

func shape(s *source.Source) string {
	o, ok := s.Resource().Snapshot().Get("n/a")
	switch {
	case !ok:
		return "none"
	case strings.Contains(string(o.JSON()), `"shape":"new"`):
		return "new"
	}
	return "old"
}

// Another version of upstream shows objects otherwise at the same resourceVersion. From the moment
// that is noticed until it is mended requests pass through; streams go on without an event (D2).
func TestUpgrade(t *testing.T) {
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	m := mirroring(t, up, nil, "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	source := m.Find(fakeapiserver.ConfigMaps)
	rv := source.Resource().CompleteRV()
	cursor := watching(t, source)

	up.StallReads(fakeapiserver.AllReads)
	up.SetKubernetes(fakeapiserver.Kubernetes{Version: "v1.38.0"})
	// and ends the watch, by which it is noticed
	up.Reshape(fakeapiserver.ConfigMaps, fakeapiserver.WithAnnotation("shape", "new"))
	eventually(t, "the upgrade to be noticed", func() bool { return m.Find(fakeapiserver.ConfigMaps) == nil })
	if got := shape(source); got != "old" {
		t.Errorf("shown as %s while upstream does not say", got)
	}
	up.StallReads(fakeapiserver.NoReads)
	eventually(t, "answers from memory again", func() bool { return m.Find(fakeapiserver.ConfigMaps) != nil })
	if m.Find(fakeapiserver.ConfigMaps) != source || source.Resource().CompleteRV() != rv {
		t.Error("the mirror began again")
	}
	if got := shape(source); got != "new" {
		t.Errorf("answers from memory as %s", got)
	}
	if run, err := cursor.Next(); len(run) > 0 || err != nil {
		t.Errorf("a stream received %q, %v", run, err)
	}
}

// While upstream is being upgraded one API server after another, what was read from an old one is
// read again.
func TestRollingUpgrade(t *testing.T) {
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	m := mirroring(t, up, nil, "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	source := m.Find(fakeapiserver.ConfigMaps)
	e := newTestEpochs(t, m)
	age := func(d time.Duration) { e.upgradeEnd, e.rereadAt = e.upgradeEnd.Add(-d), e.rereadAt.Add(-d) }
	version := func(minor string) { e.noteVersion(apimachinery.Info{Minor: minor, GitVersion: "v1." + minor + ".0"}) }

	version("38")
	eventually(t, "the state to be read", func() bool { return m.Find(fakeapiserver.ConfigMaps) != nil })
	lists := func() int { return up.Lists(fakeapiserver.ConfigMaps) }
	before := lists()
	version("38")
	if lists() != before {
		t.Error("read again at once")
	}
	// an API server later, at the same version
	up.Reshape(fakeapiserver.ConfigMaps, fakeapiserver.WithAnnotation("shape", "new"))
	age(rollingCheckInterval)
	version("38")
	if m.Find(fakeapiserver.ConfigMaps) == nil {
		t.Error("passes through on suspicion alone")
	}
	eventually(t, "the state to be read again", func() bool { return shape(source) == "new" })
	eventually(t, "the end of that", func() bool {
		return len(m.Find(fakeapiserver.ConfigMaps).Resource().Info.Kind) > 0 && lists() == before+1
	})
	age(rollingUpgradeDuration)
	version("38")
	age(rollingCheckInterval)
	version("38")
	if lists() != before+1 {
		t.Error("read again after the upgrade")
	}
}

// As long as some API server may be newer than our types, nothing is encoded with them.
func TestGreatestMinor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &epochs{minors: map[string]time.Time{}}
		f := func(want string, minors ...string) {
			t.Helper()
			for _, minor := range minors {
				e.minors[minor] = time.Now()
			}
			e.forgetOldMinors()
			if got := e.greatestMinor(); got != want {
				t.Errorf("%v: %q, want %q", minors, got, want)
			}
		}
		f("37", "37")
		f("38+", "38+", "9")
		f("38+", "37")
		time.Sleep(rollingUpgradeDuration + time.Second)
		f("37", "37")
		f("odd", "odd")
	})
}

// Another storageVersionHash says that upstream decodes what it has stored as something else.
func TestStorageVersionChanges(t *testing.T) {
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	m := mirroring(t, up, nil, "configmaps", "pods")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	m.awaitReady(t, fakeapiserver.Pods)
	e := newTestEpochs(t, m)
	e.check(t.Context())
	if up.Lists(fakeapiserver.ConfigMaps) != 0 {
		t.Error("listed without a reason")
	}
	before := (*m.running.Load())[fakeapiserver.ConfigMaps]
	e.storageHashes[before] = "another"
	e.check(t.Context())
	eventually(t, "the state to be read",
		func() bool { return up.Lists(fakeapiserver.ConfigMaps) == 1 && !before.representation.isDoubtful() })
	e.check(t.Context())
	if up.Lists(fakeapiserver.ConfigMaps) != 1 || up.Lists(fakeapiserver.Pods) != 0 {
		t.Errorf("%d and %d lists", up.Lists(fakeapiserver.ConfigMaps), up.Lists(fakeapiserver.Pods))
	}
}

// A custom resource whose watch upstream ends early is read again: its definition may be another
// one by now.
func TestEarlyEndOfCustomResource(t *testing.T) {
	up := newUpstream(t)
	up.Create(fakeapiserver.Widgets, "n", "a")
	m := mirroring(t, up, nil, "widgets.example.com")
	m.awaitReady(t, fakeapiserver.Widgets)
	source := m.Find(fakeapiserver.Widgets)
	up.Reshape(fakeapiserver.Widgets, fakeapiserver.WithAnnotation("shape", "new"))
	eventually(t, "the state to be read", func() bool { return shape(source) == "new" })
	if m.Find(fakeapiserver.Widgets) != source {
		t.Error("the mirror began again")
	}
}
