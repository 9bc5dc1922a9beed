package probes

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
	"spillway/internal/upstream/upstreamtest"
)

// The events of a backfill are those of upstream's own watch, on the connection of a LIST just
// before.
func TestPast(t *testing.T) {
	for _, o := range []fakeapiserver.Options{{}, {TLS: true}, {HTTP2: true}} {
		o.ProofDelay = time.Millisecond
		eventually(t, "history to be read on the connections of its LISTs", func() bool {
			s, c := upstreamtest.NewServer(t, o)
			from := s.Create(configMaps.GVR, "a", "one", fakeapiserver.WithLabel("app", "x"))
			s.Update(configMaps.GVR, "a", "one", fakeapiserver.WithLabel("app", "y"))
			s.Create(configMaps.GVR, "b", "two", fakeapiserver.WithLabel("app", "x"))
			s.Delete(configMaps.GVR, "b", "two")
			s.Create(fakeapiserver.Pods, "a", "elsewhere")
			app, _ := labels.Parse("app=x")
			for _, one := range []struct {
				sel  object.Selector
				want string
			}{
				{object.Selector{}, "MODIFIED a/one +1, ADDED b/two +2, DELETED b/two +3, BOOKMARK"},
				{object.NewSelector("b", "", nil, nil), "ADDED b/two +2, DELETED b/two +3, BOOKMARK"},
				{object.NewSelector("", "one", nil, nil), "MODIFIED a/one +1, BOOKMARK"},
				{object.NewSelector("", "", app, nil), "DELETED a/one +1, ADDED b/two +2, DELETED b/two +3, BOOKMARK"},
			} {
				rv, stream, err := NewHistory(c, configMaps).Begin(deadline(t))
				if err != nil || rv != s.Revision() {
					t.Fatalf("R is %d, storage at %d: %v", rv, s.Revision(), err)
				}
				if err := stream.Watch(deadline(t), one.sel, from); err != nil {
					t.Fatal(err)
				}
				var told []string
				for {
					kind, item, rv, err := stream.Next()
					if err != nil {
						t.Fatal(err)
					}
					if item == nil {
						if told = append(told, "BOOKMARK"); rv != s.Revision() {
							t.Errorf("bookmark at %d, storage at %d", rv, s.Revision())
						}
						break
					}
					told = append(told, fmt.Sprintf("%s %s +%d", kind, item.Key, rv-from))
				}
				stream.Close()
				stream.Close()
				if got := strings.Join(told, ", "); got != one.want {
					t.Errorf("%s: told %s, want %s", one.sel.Key(), got, one.want)
				}
			}
			lists, watches := s.RequestsFor(configMaps.GVR, "list"), s.RequestsFor(configMaps.GVR, "watch")
			together := true
			for i := range watches {
				together = together && lists[i].Remote == watches[i].Remote
				if agent := watches[i].Header.Get("User-Agent"); !strings.HasSuffix(agent, " backfill") {
					t.Errorf("it says it is %q", agent)
				}
			}
			if path := watches[1].Path; path != "/api/v1/namespaces/b/configmaps" {
				t.Errorf("a namespace was requested at %s", path)
			}
			return together
		})
	}
}

// What upstream does not remember it refuses; what it does not say is not made up.
func TestPastRefused(t *testing.T) {
	s, c := upstreamtest.NewServer(t, fakeapiserver.Options{})
	from := s.Create(configMaps.GVR, "a", "one")
	s.Create(configMaps.GVR, "a", "two")
	s.ForgetHistory(configMaps.GVR)
	history := NewHistory(c, configMaps)
	open := func(from uint64) *HistoryStream {
		t.Helper()
		_, stream, err := history.Begin(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Watch(deadline(t), object.Selector{}, from); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stream.Close)
		return stream
	}
	if _, _, _, err := open(from).Next(); !apierrors.IsResourceExpired(err) ||
		err.Error() != fmt.Sprintf("too old resource version: %d (%d)", from, from+1) {
		t.Error(err)
	}
	s.SuppressBookmarks(configMaps.GVR, true)
	quiet := open(from + 1)
	s.DropWatches(configMaps.GVR)
	if _, _, _, err := quiet.Next(); err != io.EOF {
		t.Error(err)
	}
	cut := open(from + 1)
	s.CutWatches(configMaps.GVR)
	if _, _, _, err := cut.Next(); err == nil || errors.Is(err, io.EOF) {
		t.Error(err)
	}
	_, unused, err := history.Begin(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := unused.Watch(deadline(t), object.Selector{}, 0); err == nil {
		t.Error("the whole state was requested")
	}
	unused.Close()
	s.FailProbes(1, 500)
	if _, _, err := history.Begin(deadline(t)); err == nil {
		t.Error("a LIST that failed is a beginning")
	}
	_, late, err := history.Begin(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	s.FailWatches(1, 403)
	if err := late.Watch(deadline(t), object.Selector{}, from); !apierrors.IsForbidden(err) {
		t.Error(err)
	}
	late.Close()
}
