package mirror

import (
	"errors"
	"strings"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/internal/health"
)

// The age of a state that cannot be kept current is shown, and does not make the proxy unready.
func TestAgeIsSent(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	m := mirroring(t, up, nil, "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	source := m.Find(fakeapiserver.ConfigMaps)
	upstream := m.UpstreamReady(0)
	age := func() time.Duration {
		age, _ := source.Age()
		return age
	}
	if detail, err := upstream(); age() != 0 || detail != "" || err != nil {
		t.Errorf("while all is well: %v, %q, %v", age(), detail, err)
	}
	up.Down()
	eventually(t, "the state to be old", func() bool { return age() >= staleThreshold })
	_, err := upstream()
	if !errors.As(err, new(health.Warning)) || !strings.HasPrefix(err.Error(), "unreachable; 1 resources are kept") ||
		!strings.HasSuffix(err.Error(), ": configmaps") {
		t.Errorf("while upstream is unreachable: %v", err)
	}
	if _, away := source.Age(); !away {
		t.Error("an API server that refuses connections is not called unreachable")
	}
	if _, err := m.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	if _, err := m.UpstreamReady(time.Hour)(); !errors.As(err, new(health.Warning)) {
		t.Errorf("unready before its time: %v", err)
	}
	if _, err := m.UpstreamReady(time.Millisecond)(); err == nil || !strings.HasPrefix(err.Error(),
		"the API server has not answered for") {
		t.Errorf("with --readyz-upstream-timeout: %v", err)
	}
	m.o.AsksAboutAll = false
	if _, err := upstream(); !strings.Contains(err.Error(), "resources are served from their last state") {
		t.Errorf("where no request is needed: %v", err)
	}
	if err := up.Up(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the state to be kept current", func() bool { return age() == 0 })
}
