package main

import (
	"strings"
	"testing"

	"spillway/internal/kubetest"
)

// How old a state is that cannot be kept current is told, and makes nobody unready.
func TestAgeIsTold(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	up.Create(kubetest.ConfigMaps, "n", "a")
	m := mirroring(t, up, nil, "configmaps")
	m.awaitReady(t, kubetest.ConfigMaps)
	source := m.Find(kubetest.ConfigMaps)
	if detail, err := m.upstream(); source.Age() != 0 || detail != "" || err != nil {
		t.Errorf("while all is well: %v, %q, %v", source.Age(), detail, err)
	}
	up.Down()
	eventually(t, "the state to be old", func() bool { return source.Age() >= awayAfter })
	if detail, err := m.upstream(); !strings.HasPrefix(detail, "away; 1 resources") || !strings.HasSuffix(detail, ": configmaps") || err != nil {
		t.Errorf("while upstream is away: %q, %v", detail, err)
	}
	if _, err := m.ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	if err := up.Up(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the state to be kept current", func() bool { return source.Age() == 0 })
}
