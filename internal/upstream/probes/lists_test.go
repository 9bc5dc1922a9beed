package probes

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
	"spillway/internal/upstream/upstreamtest"
)

// State is what upstream holds now, as keys and versions, whatever else was written.
func TestState(t *testing.T) {
	for _, o := range []fakeapiserver.Options{{}, {TLS: true}, {HTTP2: true}} {
		s, c := upstreamtest.NewServer(t, o)
		want := map[string]uint64{
			"a/one": s.Create(configMaps.GVR, "a", "one"),
			"b/two": s.Create(configMaps.GVR, "b", "two"),
		}
		s.Create(configMaps.GVR, "a", "gone")
		s.Delete(configMaps.GVR, "a", "gone")
		want["a/one"] = s.Update(configMaps.GVR, "a", "one", fakeapiserver.WithData("k", "v"))
		s.Create(fakeapiserver.Pods, "a", "elsewhere")
		p := New(c, configMaps)
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
	s, c := upstreamtest.NewServer(t, fakeapiserver.Options{})
	s.Create(configMaps.GVR, "a", "one")
	p := New(c, configMaps)
	s.FailLists(1, 403)
	if _, _, err := p.State(deadline(t)); err == nil {
		t.Error("a refusal is taken for a state")
	}
	if n := p.Stats().Failures; n != 1 {
		t.Errorf("%d failures are counted", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.State(ctx); err == nil {
		t.Error("a state without a waiter")
	}
	if n := p.Stats().Failures; n != 1 {
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
	meta, err := readVersions(io.MultiReader(parts...), func(key string, rv uint64) {
		if items++; key != "n/a" || rv != 11 {
			t.Fatalf("%s at %d", key, rv)
		}
	})
	if err != nil || items != n || meta.ResourceVersion != "20" {
		t.Errorf("%d of %d items, at %q: %v", items, n, meta.ResourceVersion, err)
	}
}

// An exact state is read whole and in order, whatever was written since, and any part of it can be
// had.
func TestExactState(t *testing.T) {
	for _, res := range []*object.Resource{configMaps, widgets, nodes} {
		s, c := upstreamtest.NewServer(t, fakeapiserver.Options{})
		const n = exactPageLimit + 7
		namespace, prefix := "", ""
		if res.Namespaced {
			namespace, prefix = "a", "a/"
		}
		want := map[string]uint64{}
		for i := range n {
			name := fmt.Sprintf("o%05d", i)
			want[prefix+name] = s.Create(res.GVR, namespace, name)
		}
		rv := s.Revision()
		s.Delete(res.GVR, namespace, "o00003")
		s.Create(res.GVR, namespace, "p")
		before := ""
		err := New(c, res).ReadVersions(deadline(t), rv, func(key string, rv uint64) {
			if key <= before || want[key] != rv {
				t.Errorf("%s: %s at %d after %s, want %d", res, key, rv, before, want[key])
			}
			before = key
			delete(want, key)
		})
		if err != nil || len(want) != 0 {
			t.Errorf("%s: %v, %d objects are missing", res, err, len(want))
		}
		part, err := New(c, res).ListFrom(deadline(t), rv, prefix+"o00002", 3)
		if err != nil || len(part) != 3 || part[0].Key != prefix+"o00002" || part[1].Key != prefix+"o00003" {
			t.Errorf("%s: a part is %v, %v", res, part, err)
		}
		s.Compact()
		if err := New(c, res).ReadVersions(deadline(t), rv, func(string, uint64) {}); !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: a state that is gone: %v", res, err)
		}
	}
}

// A list shows what a watch does (TestMirror), byte for byte: else every object would seem to be
// shown otherwise.
func TestListedObjectsHaveUpstreamsBytes(t *testing.T) {
	for _, res := range []*object.Resource{configMaps, widgets, nodes} {
		s, c := upstreamtest.NewServer(t, fakeapiserver.Options{})
		namespace := ""
		if res.Namespaced {
			namespace = "a"
		}
		s.Create(res.GVR, namespace, "one")
		s.Create(res.GVR, namespace, "two", fakeapiserver.WithLabel("<", "ü"))
		p := New(c, res)
		objects, err := p.ListObjects(deadline(t), s.Revision())
		if err != nil || len(objects) != 2 {
			t.Fatalf("%d objects, %v", len(objects), err)
		}
		for i, sent := range s.List(res.GVR) {
			if o := objects[i]; string(o.JSON()) != string(sent.Raw) || o.RV != sent.RV {
				t.Errorf("listed %s\nwatched %s", o.JSON(), sent.Raw)
			}
		}
		if _, err := p.ListObjects(deadline(t), s.Revision()+1000); err == nil {
			t.Error("a state was listed that is not there yet")
		}
	}
}
