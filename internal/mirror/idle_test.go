package mirror

import (
	"net/http"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/internal/mirror/states"
)

// A resource without requests and watches is dropped; one that is named never is.
func TestIdleMirrors(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, nil, "*", "nodes")
	m.awaitReady(t, fakeapiserver.Nodes)
	m.awaitReady(t, fakeapiserver.Pods)
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	watched, idle := m.Find(fakeapiserver.Pods), m.Find(fakeapiserver.ConfigMaps)
	cursor := watching(t, watched)
	m.dropIdleSince(time.Now().Add(-time.Hour))
	if got := m.names(); got != "configmaps nodes pods" {
		t.Errorf("mirrors %q although all were requested", got)
	}
	m.dropIdleSince(time.Now().Add(time.Hour))
	if got := m.names(); got != "nodes pods" || !idle.Resource().IsClosed() {
		t.Errorf("mirrors %q", got)
	}
	cursor.Close()
	m.dropIdleSince(time.Now().Add(time.Hour))
	if got := m.names(); got != "nodes" {
		t.Errorf("mirrors %q", got)
	}
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	if m.Find(fakeapiserver.ConfigMaps) == idle {
		t.Error("found what was dropped")
	}
}

func TestIdleTimeout(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, func(o *SetOptions) { o.IdleTimeout = time.Millisecond }, "*")
	if m.Find(fakeapiserver.Pods) == nil {
		t.Fatal("it is not mirrored for a request")
	}
	eventually(t, "an idle mirror to be dropped", func() bool { return m.names() == "" })
}

// The time since the last request is not that of the wall clock: a clock that is set forward by
// hours makes no resource idle.
func TestIdlenessIsNotMeasuredByTheWallClock(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, nil, "*")
	m.awaitReady(t, fakeapiserver.Pods)
	began := time.Now()
	m.Find(fakeapiserver.Pods)
	used := (*m.running.Load())[fakeapiserver.Pods].lastUsed()
	if used.Before(began) || used.After(time.Now()) {
		t.Errorf("used at %v, between %v and %v", used, began, time.Now())
	}
	if used == used.Round(0) { // which is what a wall clock alone can tell
		t.Errorf("%v depends on the wall clock", used)
	}
}

// What was refused, and no client asks for any more, is not shown forever.
func TestRefusedKindIsForgottenOnceItIsIdle(t *testing.T) {
	up := newUpstream(t)
	up.Handle("/api/v1/pods", refusing(http.StatusForbidden))
	m := mirroring(t, up, nil, "*")
	m.firstRetryPause = time.Minute
	m.Find(fakeapiserver.Pods)
	m.awaitKind(t, "pods", states.KindRefused)
	m.dropIdleSince(time.Now().Add(-time.Hour))
	if m.kindOf("pods") != states.KindRefused {
		t.Error("forgotten too soon")
	}
	m.dropIdleSince(time.Now().Add(time.Hour))
	if kind := m.kindOf("pods"); kind != "" {
		t.Errorf("it is still shown as %s", kind)
	}
}
