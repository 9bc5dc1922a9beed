package mirror

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"spillway/internal/fakeapiserver"
	"spillway/internal/mirror/states"
	"spillway/internal/upstream/capabilities"
)

// Capabilities are probed again after another version, after an outage and now and then. A change
// is one line of log.
func TestCapabilitiesAreProbedAgain(t *testing.T) {
	up := newUpstream(t)
	up.SetKubernetes(fakeapiserver.Kubernetes136)
	core, lines := observer.New(zap.InfoLevel)
	m := mirroring(t, up, nil, "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	now := time.Now()
	p := newCapabilityProbes(m, zap.New(core), now)
	pass := func(d time.Duration) { now = now.Add(d) }
	probed := func(why string, want bool) {
		t.Helper()
		up.Bump()
		if got := p.isDue(now); got != want {
			t.Fatalf("%s: due %t, want %t", why, got, want)
		}
		if want {
			p.probe(now)
		}
		p.logChange()
	}
	probed("the first", true)
	if got := m.Capabilities(); got.WatchList != capabilities.Present ||
		got.WatchListCompression != capabilities.Absent {
		t.Errorf("%v", got)
	}
	pass(minCapabilitiesInterval)
	probed("nothing has changed", false)
	pass(capabilitiesInterval)
	probed("now and then", true)

	up.CutWatches(fakeapiserver.ConfigMaps)
	up.FailWatches(1, 500)
	eventually(t, "a failure", func() bool { return m.countFailures() > 0 })
	eventually(t, "another watch", m.all()[0].isWell)
	probed("an outage just after a probe", false)
	pass(minCapabilitiesInterval)
	probed("an outage", true)

	up.SetKubernetes(fakeapiserver.Kubernetes137)
	eventually(t, "the other version", func() bool { return m.Capabilities().Newest == "v1.37.1" })
	pass(minCapabilitiesInterval)
	probed("another version", true)
	if got := m.Capabilities(); got.WatchListCompression != capabilities.Absent {
		t.Errorf("%v, though the older version was just seen", got)
	}
	pass(rollingCheckInterval)
	probed("two versions", true)
	logged := lines.FilterMessage("capabilities of upstream").All()
	for i, line := range logged[1:] {
		if reflect.DeepEqual(line.ContextMap(), logged[i].ContextMap()) {
			t.Errorf("logged twice: %v", line.ContextMap())
		}
	}
	if last := logged[len(logged)-1].ContextMap()["version"]; last != "v1.36.3 to v1.37.1" {
		t.Errorf("the last line is of %v", last)
	}
}

// A probe that fails is repeated after pauses that become longer, whatever is seen meanwhile.
func TestFailingProbesOfCapabilitiesBackOff(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, nil, "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	now := time.Now()
	p := newCapabilityProbes(m, zap.NewNop(), now)
	probe := func(pause time.Duration) {
		t.Helper()
		if !p.isDue(now) {
			t.Fatal("it is not due")
		}
		p.probe(now)
		now = now.Add(pause)
		if p.isDue(now.Add(-time.Nanosecond)) {
			t.Errorf("it is due within %v", pause)
		}
	}
	p.version = "another" // than upstream's, as is seen
	up.FailWatches(1<<30, 500)
	for _, pause := range []time.Duration{capabilitiesRetryInterval, 2 * capabilitiesRetryInterval,
		4 * capabilitiesRetryInterval, 8 * capabilitiesRetryInterval, 16 * capabilitiesRetryInterval,
		capabilitiesInterval, capabilitiesInterval} {
		probe(pause)
	}
	up.FailWatches(0, 500)
	probe(minCapabilitiesInterval)
	p.version = "another"
	up.FailWatches(1<<30, 500)
	probe(capabilitiesRetryInterval)
	if got := m.Capabilities(); got.WatchList != capabilities.Present {
		t.Errorf("%v: a failure is taken for an answer", got)
	}
}

// The deletion of an object that upstream cannot decode is an ERROR event there, and no 410.
// Clients receive the deletion, and no watch ends.
func TestCorruptDeletionReachesClients(t *testing.T) {
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "corrupt")
	up.Create(fakeapiserver.ConfigMaps, "n", "other")
	m := mirroring(t, up, nil, "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	source := m.Find(fakeapiserver.ConfigMaps)
	cursor := watching(t, source)
	up.CorruptDelete(fakeapiserver.ConfigMaps, "n", "corrupt")
	var seen []byte
	eventually(t, "the deletion", func() bool {
		run, err := cursor.Next()
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, run...)
		return bytes.Contains(seen, []byte(`{"type":"DELETED"`))
	})
	if n := bytes.Count(seen, []byte(`"type":"DELETED"`)); n != 1 || !bytes.Contains(seen, []byte(`"name":"corrupt"`)) ||
		bytes.Contains(seen, []byte(`"type":"ERROR"`)) {
		t.Errorf("a watch received %s", seen)
	}
	m.awaitKind(t, "configmaps", states.KindSynced)
	if m.Find(fakeapiserver.ConfigMaps) != source || source.Resource().IsHistoryReset() {
		t.Error("the mirror began again")
	}
}
