package watch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"spillway/internal/object"
	"spillway/internal/source/sourcetest"
)

// watchBy is watch, of a client that is known.
func (w *world) watchBy(query string, who ClientInfo) *testClient {
	w.t.Helper()
	return w.watchAs(query, StreamOptions{Client: who}, func(*Stream) {})
}

// known is what is known of a world's watches, by their users.
func (w *world) known() map[string]Watch {
	w.t.Helper()
	synctest.Wait()
	all := w.manager.Watches()
	by := map[string]Watch{}
	for _, one := range all {
		by[one.User] = one
	}
	if len(by) != len(all) {
		w.t.Fatalf("%d watches of %d users", len(all), len(by))
	}
	return by
}

// TestTheListOfWatchesIsTrueForEachDeliverer shows that the list of watches is true for each
// deliverer.
func TestTheListOfWatchesIsTrueForEachDeliverer(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		began := time.Now()
		swift := w.watchBy("/api/v1/pods?watch=1&resourceVersion=0&allowWatchBookmarks=1", NewClient("swift", "kubectl/v1"))
		picky := w.watchBy("/api/v1/namespaces/o/pods?watch=1&resourceVersion=100&labelSelector=app%3Dx&"+
			"fieldSelector=metadata.name%3Dk&timeoutSeconds=600", NewClient("picky", strings.Repeat("ü", 1000)))
		slow := w.watchBy("/api/v1/pods?watch=1&resourceVersion=100", ClientInfo{})
		swift.gets("ADDED a/x 5", "BOOKMARK 100 end")
		picky.gets()
		slow.gets()
		time.Sleep(time.Minute - time.Second)
		slow.pause()
		w.set("a/x 101") // is taken by the read under way
		synctest.Wait()
		w.set("a/x 102")
		w.set("a/x 103")
		synctest.Wait()
		w.set("a/x 104")
		time.Sleep(7 * time.Second)
		known := w.known()

		one := known["swift"]
		swift.mu.Lock()
		sent := len(swift.text)
		swift.mu.Unlock()
		head := strings.Index(string(swift.text), "\r\n\r\n") + 4
		if one.Bytes != int64(sent-head) || one.Lag != 0 || one.Behind != 0 || one.Blocked != 0 || one.Unsent != 0 ||
			one.Phase != Live {
			t.Errorf("swift: %d bytes were sent: %+v", sent-head, one)
		}
		if one.Agent != "kubectl/v1" || one.Encoding != "json" || one.Protocol != "HTTP/1.1" || one.Source != w.source ||
			one.Selected != (SelectionText{}) ||
			!one.Began.Equal(began) || !one.LastEvent.Equal(began.Add(time.Minute-time.Second)) {
			t.Errorf("swift: %+v", one)
		}
		one = known["picky"]
		if one.Selected != (SelectionText{Namespace: "o", Name: "k", Labels: "app=x", Fields: "metadata.name=k"}) &&
			one.Selected != (SelectionText{Namespace: "o", Labels: "app=x", Fields: "metadata.name=k"}) {
			t.Errorf("picky selects %+v", one.Selected)
		}
		if one.Lag != 0 || one.Phase != Live || len(one.Agent) != userAgentBytesLimit ||
			!one.Deadline.Equal(began.Add(600*time.Second)) || !one.LastEvent.IsZero() {
			t.Errorf("picky: %+v", one)
		}
		one = known[""]
		if waits := max(one.Behind, one.Blocked); one.Lag == 0 || waits != 7*time.Second || one.Phase != Live {
			t.Errorf("slow: has been waited for for %s: %+v", waits, one)
		}
		want := map[lagGroup]lag{{"pods", "all"}: {2, 7 * time.Second}, {"pods", "name"}: {1, 0}}
		if got := w.manager.lagGroups(); !maps.Equal(got, want) {
			t.Errorf("lags %v, want %v", got, want)
		}
		ids := []uint64{known["swift"].ID, known["picky"].ID, known[""].ID}
		if slices.Sort(ids); ids[0] == 0 || len(slices.Compact(ids)) != 3 {
			t.Errorf("ids %v", ids)
		}

		slow.resume()
		time.Sleep(time.Second)
		swift.stream.Pause()
		w.set("a/x 105")
		time.Sleep(3 * time.Second)
		known = w.known()
		if one := known[""]; one.Lag != 0 || one.Blocked != 0 || one.Behind != 0 {
			t.Errorf("slow has caught up: %+v", one)
		}
		want[lagGroup{"pods", "all"}] = lag{2, 3 * time.Second}
		if got := w.manager.lagGroups(); !maps.Equal(got, want) {
			t.Errorf("lags %v, want %v", got, want)
		}
		if one := known["swift"]; one.Phase != Paused || one.Lag != 1 || one.Behind != 3*time.Second {
			t.Errorf("swift is held: %+v", one)
		}
		swift.stream.Resume()
	})
}

// A resource that is mirrored twice, in other versions, is one in metrics: a registry does not take
// the same labels twice.
func TestLagsOfTwoSources(t *testing.T) {
	var streams []*Stream
	for range 2 {
		st := &Stream{source: sourcetest.New(t, sourcetest.Pods, sourcetest.NewOracle(100), 100)}
		st.liveSelector.Store(&object.Selector{})
		streams = append(streams, st)
	}
	want := map[lagGroup]lag{{"pods", "all"}: {streams: 2}}
	if got := groupLags(streams, time.Now()); !maps.Equal(got, want) {
		t.Errorf("lags %v, want %v", got, want)
	}
}

// A watch is starting until its state is sent.
func TestWatchesThatStart(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		w.watchAs("/api/v1/pods?watch=1&resourceVersion=0", StreamOptions{Client: NewClient("new", "")}, (*Stream).Pause)
		if one := w.known()["new"]; one.Phase != Starting || one.Lag != 0 {
			t.Errorf("%+v", one)
		}
	})
}

// A client that stops reading in its initial events is behind, as one that stops later is. A watch
// that is sent its initial events without a wait is not.
func TestAClientThatStopsInItsInitialEventsIsBehind(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		readsOn := make(chan struct{})
		w.pace = func(int) { <-readsOn } // which holds it up after the head
		w.watchBy("/api/v1/pods?watch=1&resourceVersion=0", NewClient("stuck", ""))
		time.Sleep(7 * time.Second)
		one := w.known()["stuck"]
		if one.Phase != Starting || one.Blocked != 7*time.Second || one.Unsent == 0 {
			t.Errorf("%+v", one)
		}
		want := map[lagGroup]lag{{"pods", "all"}: {1, 7 * time.Second}}
		if got := w.manager.lagGroups(); !maps.Equal(got, want) {
			t.Errorf("lags %v, want %v", got, want)
		}
		if n := w.manager.slowClients(); n != 1 {
			t.Errorf("%d slow clients", n)
		}
		close(readsOn)
		if one := w.known()["stuck"]; one.Phase != Live || one.Blocked != 0 || one.Unsent != 0 {
			t.Errorf("after it reads on: %+v", one)
		}
	})
}

func TestWatchesOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, deliveries["writers"], "a/x 5")
		const many = 400
		for i := range many {
			w.watchBy("/api/v1/pods?watch=1&resourceVersion=100", NewClient(fmt.Sprint("user-", i), ""))
		}
		w.set("a/x 101")
		known := w.known()
		if len(known) != many {
			t.Errorf("%d watches, want %d", len(known), many)
		}
		for user, one := range known {
			if one.Phase != Live || one.Bytes == 0 {
				t.Fatalf("%s: %+v", user, one)
			}
		}
	})
}

// TestEndedWatchesAreNotListed shows that a server that is closing still answers.
func TestEndedWatchesAreNotListed(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		p := w.watchBy("/api/v1/pods?watch=1&resourceVersion=100", NewClient("last", ""))
		p.gets()
		if n := len(w.manager.Watches()); n != 1 {
			t.Errorf("%d watches", n)
		}
		w.stop(EndAborted.AsError())
		synctest.Wait()
		if all := w.manager.Watches(); len(all) > 0 {
			t.Errorf("%+v", all)
		}
	})
}

// Watches are grouped by the narrowest thing that they select by, of which there are a few, and not
// by selector.
func TestWatchesAreGroupedByTheirNarrowestSelection(t *testing.T) {
	for _, c := range []struct{ namespace, name, labels, fields, want string }{
		{"", "", "", "", "all"},
		{"", "", "app!=x", "", "all"},
		{"o", "", "app!=x", "", "namespace"},
		{"o", "", "", "spec.nodeName=n", "field"},
		{"o", "", "app=x", "spec.nodeName=n", "field"},
		{"o", "", "app in (x,y)", "", "label"},
		{"o", "", "app=x", "metadata.name=k", "name"},
		{"o", "k", "", "", "name"},
		{"", "", "", "metadata.namespace=o", "namespace"},
	} {
		byLabel, err := labels.Parse(c.labels)
		if err != nil {
			t.Fatal(err)
		}
		byField, err := fields.ParseSelector(c.fields)
		if err != nil {
			t.Fatal(err)
		}
		if got := selectorType(object.NewSelector(c.namespace, c.name, byLabel, byField)); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// The reported part of a selector is short, valid text, and does not keep the rest of it in memory.
func TestLongSelectorsAreShortened(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "app=x": "app=x", strings.Repeat("a", selectorBytesLimit): strings.Repeat("a", selectorBytesLimit),
		strings.Repeat("a", 1<<20): strings.Repeat("a", selectorBytesLimit) + "…",
		strings.Repeat("€", 1<<10): strings.Repeat("€", selectorBytesLimit/3) + "…",
	} {
		if got := truncateSelector(text); got != want {
			t.Errorf("%.20q of %d bytes became %.20q of %d", text, len(text), got, len(got))
		}
	}
}
