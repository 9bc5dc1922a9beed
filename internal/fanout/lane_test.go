package fanout

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"spillway/internal/cache"
	"spillway/internal/object"
)

// unlike selects all of a namespace that has no such label, by so many terms, and is another
// selector for each number.
func unlike(t testing.TB, namespace string, terms, number int) object.Selector {
	t.Helper()
	all := make([]string, terms)
	for i := range all {
		all[i] = fmt.Sprintf("x%d-%d!=v", number, i)
	}
	return selectorOf(t, namespace, "", strings.Join(all, ","), "")
}

// until waits for a condition.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited unsuccessfully for %s", what)
		}
	}
}

// collect waits until a cursor has everything below the head.
func (w *world) collect(c *Cursor) []byte {
	w.Helper()
	var all []byte
	until(w, "a cursor to have everything", func() bool {
		run, err := drain(c)
		w.must(err)
		all = append(all, run...)
		return c.Lag() == 0
	})
	return all
}

// The hub asks no heavy selector about anything, and no more light ones of an owner's than its
// share; what it does ask is shown at once.
func TestHubAsksNoCostlySelectors(t *testing.T) {
	w := newWorld(t, plenty)
	w.hub.Dispatch()
	view, s := w.hub.ViewFor("mallory"), w.resource.Snapshot()
	var heavy, light []*Cursor
	for i := range 3 {
		heavy = append(heavy, view.CursorAt(s.Next, s.RV, unlike(t, "a", object.LightWeightLimit+1, i), plain))
	}
	const each = 100
	for i := range 200 {
		light = append(light, view.CursorAt(s.Next, s.RV, unlike(t, "a", each, 100+i), plain))
	}
	other := w.hub.ViewFor("alice").CursorAt(s.Next, s.RV, unlike(t, "a", 1, 1000), plain)
	within := ownerCostLimit / (feedCost + each)
	w.hub.Dispatch()
	const events = 5
	for i := range events {
		w.set(fmt.Sprint("a/", i), "web")
	}
	w.hub.Dispatch()
	if n := w.hub.Stats().SelectorEvaluations.Load(); n != uint64(events*(within+1)) {
		t.Errorf("the hub asked %d selectors about %d events, want %d about each", n, events, within+1)
	}
	if run, err := drain(other); err != nil || len(decode(t, run, plain)) != events || !other.IsLive() {
		t.Errorf("another owner got %q, %v", run, err)
	}
	want := w.collect(w.hub.NewReplayCursor(s.Next, s.RV, unlike(t, "a", 1, 1), plain))
	for i, c := range append(heavy, light...) {
		if got := w.collect(c); !bytes.Equal(got, want) {
			t.Errorf("watch %d got %q, want %q", i, got, want)
		}
		c.Close()
	}
	other.Close()
	if n := w.hub.Lanes(); n != 0 {
		t.Errorf("%d lanes are left", n)
	}
	if w.hub.lanes.totalCost != 0 || len(w.hub.lanes.costs) != 0 {
		t.Errorf("%d are still charged, to %v", w.hub.lanes.totalCost, w.hub.lanes.costs)
	}
}

// Equal selectors have one feed and are evaluated once, however many watches there are, in the hub
// and in a lane.
func TestEqualSelectorsAreEvaluatedOnce(t *testing.T) {
	w := newWorld(t, plenty)
	w.hub.Dispatch()
	s := w.resource.Snapshot()
	var all []*Cursor
	for range 40 {
		all = append(all, w.hub.ViewFor("mallory").CursorAt(s.Next, s.RV, unlike(t, "a", 1000, 0), plain))
	}
	if n := w.hub.Feeds(); n != 1 {
		t.Errorf("%d feeds", n)
	}
	for _, c := range all[1:] {
		if c.selector != all[0].selector {
			t.Fatal("a watch has a selector of its own")
		}
	}
	lane := all[0].hub
	w.progress() // a feed is looked for in the index from the next entry on
	until(t, "the lane to know its feed",
		func() bool { lane.mu.Lock(); defer lane.mu.Unlock(); return len(lane.mu.newFeeds) == 0 })
	for i := range 7 {
		w.set(fmt.Sprint("a/", i), "web")
	}
	for _, c := range all {
		if n := len(decode(t, w.collect(c), plain)); n != 7 {
			t.Errorf("%d events", n)
		}
	}
	until(t, "the lane to have asked", func() bool { return w.hub.LaneLag() == 0 })
	if n := w.hub.Stats().LaneSelectorEvaluations.Load(); n != 7 {
		t.Errorf("asked %d times about 7 events", n)
	}
	for _, c := range all {
		c.Close()
	}
}

// Feeds that select by scope alone are the hub's, however many an owner has; and an equal selector
// shares the feed that is there.
func TestWhatCostsNothingNeedsNoShare(t *testing.T) {
	w := newWorld(t, plenty)
	s := w.resource.Snapshot()
	var all []*Cursor
	for i := range 3000 {
		all = append(all, w.hub.ViewFor("mallory").CursorAt(s.Next, s.RV, object.Selector{Namespace: fmt.Sprint("n", i)},
			plain))
	}
	single := selectorOf(t, "", "", "app=web", "")
	all = append(all, w.hub.ViewFor("alice").CursorAt(s.Next, s.RV, single, plain),
		w.hub.ViewFor("mallory").CursorAt(s.Next, s.RV, single, plain))
	if n := w.hub.Lanes(); n != 0 {
		t.Errorf("%d lanes", n)
	}
	if w.hub.lanes.totalCost != indexedFeedCost || w.hub.lanes.costs["alice"] != indexedFeedCost {
		t.Errorf("%d, %v", w.hub.lanes.totalCost, w.hub.lanes.costs)
	}
	for _, c := range all {
		c.Close()
	}
}

// A hub that ends has its lanes dispatch what is in the log, and a lane that begins later shows
// that history has ended.
func TestLanesEndWithTheirHub(t *testing.T) {
	w := newWorld(t, plenty)
	w.hub.SetLaneLimiter(NewLaneLimiter(1))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = w.hub.Run(ctx); close(done) }()
	s := w.resource.Snapshot()
	first, second := w.hub.ViewFor("mallory").CursorAt(s.Next, s.RV, unlike(t, "a", 1000, 0), plain),
		w.hub.ViewFor("oscar").CursorAt(s.Next, s.RV, unlike(t, "a", 1000, 0), plain)
	w.set("a/x", "web")
	stop()
	<-done
	late := w.hub.ViewFor("mallory").CursorAt(s.Next, s.RV, unlike(t, "a", 1000, 1), plain)
	for _, c := range []*Cursor{first, second, late} {
		w.expect(c, "ADDED a/x 102")
		c.Close()
	}
}

// Lanes tell what the log alone tells, byte for byte, while writers write, seams come, and cursors
// come and go.
func TestLanesTellWhatTheLogTells(t *testing.T) {
	w := newWorld(t, cache.HistoryLimits{HistoryBytes: 1 << 40, HistoryMinAge: time.Hour})
	w.hub.SetLaneLimiter(NewLaneLimiter(2))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = w.hub.Run(ctx); close(done) }()
	r := rand.New(rand.NewPCG(3, 4))
	type pair struct {
		aside, log  *Cursor
		told, truth []byte
	}
	var pairs []*pair
	read := func(p *pair) {
		run, err := p.aside.Next()
		w.must(err)
		p.told = append(p.told, run...)
	}
	for i := range 2000 {
		switch key := fmt.Sprint([]string{"a", "b"}[r.IntN(2)], "/", r.IntN(10)); r.IntN(20) {
		case 0:
			w.progress()
		case 1:
			w.replace(w.kept()...)
		case 2, 3:
			if _, ok := w.resource.Snapshot().Get(key); ok {
				w.delete(key)
			}
		default:
			w.setPadded(key, fmt.Sprint("x", r.IntN(3)), r.IntN(3000))
		}
		if i%20 == 0 {
			s := w.resource.Snapshot()
			sel := selectorOf(t, []string{"", "a"}[r.IntN(2)], "",
				fmt.Sprintf("app!=x%d,%s", r.IntN(3), unlike(t, "", 300, r.IntN(5)).LabelQuery()), "")
			enc := []object.Encoding{plain, bookmarks, metadata}[r.IntN(3)]
			pairs = append(pairs, &pair{
				aside: w.hub.ViewFor(Owner(fmt.Sprint(r.IntN(3)))).CursorAt(s.Next, s.RV, sel, enc),
				log:   w.hub.NewReplayCursor(s.Next, s.RV, sel, enc),
			})
		}
		for range r.IntN(8) {
			if len(pairs) > 0 {
				read(pairs[r.IntN(len(pairs))])
			}
		}
	}
	followed := 0
	for i, p := range pairs {
		p.told = append(p.told, w.collect(p.aside)...)
		p.truth = w.collect(p.log)
		if !bytes.Equal(p.told, p.truth) {
			t.Errorf("%d, %s: sent %d bytes, want %d", i, p.aside.selector.Namespace, len(p.told), len(p.truth))
		}
		if p.aside.CompleteRV() != p.log.CompleteRV() {
			t.Errorf("%d: through %d, want %d", i, p.aside.CompleteRV(), p.log.CompleteRV())
		}
		if p.aside.IsLive() {
			followed++
		}
		p.aside.Close()
	}
	if followed == 0 || w.hub.Stats().LaneSelectorEvaluations.Load() == 0 {
		t.Errorf("%d of %d followed a lane", followed, len(pairs))
	}
	stop()
	<-done
}

// A sliced cursor that reads the log asks about a few entries at a time, and tells the same.
func TestSlicedCursorAsksAboutFewAtATime(t *testing.T) {
	w := newWorld(t, plenty)
	s := w.resource.Snapshot()
	for i := range 10 * workLimit {
		w.set(fmt.Sprint("a/", i), []string{"web", "db"}[i*2/(10*workLimit)])
	}
	sel := app("db") // sees the second half
	whole, sliced := w.hub.NewReplayCursor(s.Next, s.RV, sel, plain), w.hub.NewReplayCursor(s.Next, s.RV, sel, plain)
	sliced.LimitWork()
	want, err := drain(whole)
	w.must(err)
	var got []byte
	calls := 0
	for again := true; again; calls++ {
		before := sliced.Lag()
		run, err := sliced.Next()
		w.must(err)
		if n := before - sliced.Lag(); n > workLimit {
			t.Fatalf("asked about %d entries at once", n)
		}
		got = append(got, run...)
		again = sliced.HasMore() || len(run) > 0
	}
	if !bytes.Equal(got, want) || len(want) == 0 {
		t.Errorf("sent %d bytes, want %d", len(got), len(want))
	}
	if calls < 10 {
		t.Errorf("%d slices", calls)
	}
	if whole.HasMore() {
		t.Error("one that is not sliced ended early")
	}
}

// However many distinct selectors see a large object, few copies of it are made before the next
// event has its turn.
func TestLargeEventIsCopiedFewTimes(t *testing.T) {
	w := newWorld(t, plenty)
	s := w.resource.Snapshot()
	var all []*Cursor
	for i := range 30 {
		all = append(all, w.hub.ViewFor("").CursorAt(s.Next, s.RV, unlike(t, "a", 1, i), plain))
	}
	w.hub.Dispatch()
	w.setPadded("a/x", "web", 1<<20)
	w.hub.Dispatch()
	if n := w.hub.Stats().Frames.Load(); n != copiedBytesLimit>>20 {
		t.Errorf("%d copies", n)
	}
	for _, c := range all {
		w.expect(c, "ADDED a/x 102")
		c.Close()
	}
}

// The feeds of a lane keep a bounded number of bytes, however many there are, and tell the same.
func TestLaneHasRoomOfItsOwn(t *testing.T) {
	w := newWorld(t, plenty)
	w.hub.Dispatch()
	s := w.resource.Snapshot()
	var all []*Cursor
	for i := range 300 {
		all = append(all, w.hub.ViewFor("mallory").CursorAt(s.Next, s.RV, unlike(t, "a", object.LightWeightLimit+1, i),
			plain))
	}
	lane := all[0].hub
	lane.bytesLimit = 1 << 20
	const events = 6
	for i := range events {
		w.setPadded(fmt.Sprint("a/", i), "web", 50_000)
	}
	until(t, "the lane to dispatch", func() bool { return w.hub.LaneLag() == 0 })
	held := int64(0)
	for _, f := range lane.index.all { // which its goroutine has left behind by the progress that LaneLag has seen
		held += f.keptBytes
	}
	if most := lane.bytesLimit + 1<<20; held > most {
		t.Errorf("%d bytes are kept, want at most %d", held, most)
	}
	for i, c := range all {
		if n := len(decode(t, w.collect(c), plain)); n != events {
			t.Errorf("watch %d got %d events", i, n)
		}
		c.Close()
	}
}
