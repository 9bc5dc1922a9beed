package upstream

import (
	"context"
	"io"
	"maps"
	"strings"
	"testing"

	"spillway/internal/fakeapiserver"
)

// State is what upstream holds now, as keys and versions, whatever else was written.
func TestState(t *testing.T) {
	for _, o := range []fakeapiserver.Options{{}, {TLS: true}, {HTTP2: true}} {
		s, c := apiserver(t, o)
		want := map[string]uint64{
			"a/one": s.Create(configMaps.GVR, "a", "one"),
			"b/two": s.Create(configMaps.GVR, "b", "two"),
		}
		s.Create(configMaps.GVR, "a", "gone")
		s.Delete(configMaps.GVR, "a", "gone")
		want["a/one"] = s.Update(configMaps.GVR, "a", "one", fakeapiserver.WithData("k", "v"))
		s.Create(fakeapiserver.Pods, "a", "elsewhere")
		p := c.NewProber(configMaps)
		rv, versions, err := p.State(deadline(t))
		if err != nil || rv < s.Revision() || !maps.Equal(versions, want) {
			t.Errorf("%v at %d, %v; want %v at %d", versions, rv, err, want, s.Revision())
		}
		if got, want := p.Stats(), (ProbeStats{States: 1}); got != want {
			t.Errorf("stats %+v", got)
		}
	}
}

// What is no complete state is none.
func TestNoState(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{})
	s.Create(configMaps.GVR, "a", "one")
	p := c.NewProber(configMaps)
	s.FailLists(1, 403)
	if _, _, err := p.State(deadline(t)); err == nil {
		t.Error("a refusal is taken for a state")
	}
	if n := p.Stats().Failed; n != 1 {
		t.Errorf("%d failures are counted", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.State(ctx); err == nil {
		t.Error("a state without a waiter")
	}
	if n := p.Stats().Failed; n != 1 {
		t.Errorf("%d failures are counted with one that was called off", n)
	}
}

// A page of metadata is read however long it is.
func TestLongPageOfVersions(t *testing.T) {
	const n = 300
	item := `{"metadata":{"namespace":"n","name":"a","resourceVersion":"11","annotations":{"a":"` +
		strings.Repeat("x", 256<<10) + `"}}}`
	parts := []io.Reader{strings.NewReader(`{"metadata":{"resourceVersion":"20"},"items":[` + item)}
	for range n - 1 {
		parts = append(parts, strings.NewReader(","), strings.NewReader(item))
	}
	parts = append(parts, strings.NewReader("]}\n"))
	items := 0
	meta, err := readVersionsPage(io.MultiReader(parts...), func(key string, rv uint64) {
		if items++; key != "n/a" || rv != 11 {
			t.Fatalf("%s at %d", key, rv)
		}
	})
	if err != nil || items != n || meta.ResourceVersion != "20" {
		t.Errorf("%d of %d items, at %q: %v", items, n, meta.ResourceVersion, err)
	}
}
