package fanout

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"spillway/internal/cache"
	"spillway/internal/object"
	"spillway/internal/testutil"
)

// selectorOf makes a selector as a request would.
func selectorOf(t testing.TB, namespace, name, label, field string) object.Selector {
	t.Helper()
	l, err := labels.Parse(label)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fields.ParseSelector(field)
	if err != nil {
		t.Fatal(err)
	}
	return object.NewSelector(namespace, name, l, f)
}

// selectorGenerator draws selectors and events from a world that is small enough for them to meet.
type selectorGenerator struct {
	*testing.T
	*rand.Rand
	rv uint64
}

func (l *selectorGenerator) one(of ...string) string { return of[l.IntN(len(of))] }

func (l *selectorGenerator) selector() object.Selector {
	var label, field []string
	for range l.IntN(3) {
		key := l.one("app", "tier", "x/y")
		label = append(label, l.one(key+"=a", key+"=b", key+"=", key+"!=a", key, "!"+key, key+" in (a,b)", key+" in (a,)",
			key+" notin (a,b)", key+">1",
			key+" in (a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q)"))
	}
	for range l.IntN(3) {
		field = append(field, l.one("metadata.name=p0", "metadata.name!=p0", "metadata.namespace=n1",
			"metadata.namespace!=n1", "metadata.namespace=",
			"spec.nodeName=", "spec.nodeName=node-1", "spec.nodeName!=node-1", "spec.host=node-2", "status.phase=Running",
			"spec.hostNetwork=false",
			"status.podIPs=", "spec.hostNetwork=true"))
	}
	return selectorOf(l, l.one("", "", "n0", "n1"), l.one("", "", "", "p0", "p1"), strings.Join(label, ","),
		strings.Join(field, ","))
}

func (l *selectorGenerator) object(namespace, name string) *object.Object {
	var set []string
	for _, key := range []string{"app", "tier", "x/y"} {
		if value := l.one("", "a", "b", "2", "-"); value != "-" {
			set = append(set, fmt.Sprintf("%q:%q", key, value))
		}
	}
	l.rv++
	raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d",`+
		`"labels":{%s}},"spec":{%s%s"a":1},"status":{%s}}`,
		name, namespace, l.rv, strings.Join(set, ","), l.one("", `"nodeName":"node-1",`, `"nodeName":"node-2",`),
		l.one("", `"hostNetwork":true,`),
		l.one("", `"phase":"Running"`))
	o, err := pods.Parse([]byte(raw))
	if err != nil {
		l.Fatal(err)
	}
	return o
}

// event is a creation, a change, a deletion, or progress.
func (l *selectorGenerator) event() *object.Event {
	namespace, name := l.one("n0", "n1", "n2"), l.one("p0", "p1", "p2")
	e := &object.Event{}
	if l.IntN(8) > 0 {
		e.Old = l.object(namespace, name)
	}
	if l.IntN(8) > 0 {
		e.New = l.object(namespace, name)
	}
	e.RV = l.rv
	return e
}

// checkIndex lets feeds come and go, and holds what the index finds against asking every feed: none
// is left out that sees the event, none is found twice, and none that is gone.
func checkIndex(t *testing.T, seed uint64) (found, asked int) {
	l := &selectorGenerator{T: t, Rand: rand.New(rand.NewPCG(seed, 0))}
	var x index
	var feeds []*Feed
	for range 200 {
		switch n := l.IntN(10); {
		case n < 4:
			sel := l.selector()
			f := newFeed(feedKeyOf(sel, plain), sel)
			x.add(f)
			feeds = append(feeds, f)
		case n < 6 && len(feeds) > 0:
			i := l.IntN(len(feeds))
			x.remove(feeds[i])
			feeds = slices.Delete(feeds, i, i+1)
		default:
			e := l.event()
			got := map[*Feed]int{}
			for _, f := range x.find(e) {
				got[f]++
			}
			for _, f := range feeds {
				_, _, seen := f.selector.EventFor(e)
				if n := got[f]; n > 1 || seen && n == 0 {
					t.Fatalf("seed %d: the feed of %s is found %d times by %v → %v; it sees that: %v", seed, f.selector.Key(), n,
						e.Old, e.New, seen)
				}
				if got[f] > 0 {
					found++
				}
				delete(got, f)
				asked++
			}
			if len(got) > 0 {
				t.Fatalf("seed %d: %d feeds are found that are gone", seed, len(got))
			}
		}
		if len(x.all) != len(feeds) {
			t.Fatalf("seed %d: %d feeds are listed, want %d", seed, len(x.all), len(feeds))
		}
	}
	for _, f := range feeds {
		x.remove(f)
	}
	if len(x.all)+len(x.unindexed)+len(x.fields)+len(x.labels) > 0 {
		t.Fatalf("seed %d: the index keeps something: %+v", seed, x)
	}
	return found, asked
}

func TestIndexFindsWhatAskingFinds(t *testing.T) {
	found, asked := 0, 0
	for seed := range 300 {
		f, a := checkIndex(t, uint64(seed))
		found, asked = found+f, asked+a
	}
	if found == 0 || found*2 > asked {
		t.Fatalf("%d of %d feeds were found: that tests nothing", found, asked)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { checkIndex(t, seed) })
}

// An event finds the feeds that stand where one of its two versions does, and of the rest none.
func TestIndexCostsWhatMatches(t *testing.T) {
	pod := func(namespace, name, node, app string) *object.Object {
		o, err := pods.Parse(fmt.Appendf(
			nil, `{"metadata":{"name":%q,"namespace":%q,"resourceVersion":"7","labels":{"app":%q,"all":"helm"}},"spec":`+
				`{"nodeName":%q}}`,
			name, namespace, app, node))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	f := func(want int, selectors func(i int) object.Selector, e object.Event) {
		t.Helper()
		var x index
		for i := range 5000 {
			sel := selectors(i)
			x.add(newFeed(feedKeyOf(sel, plain), sel))
		}
		if n := len(x.find(&e)); n != want {
			t.Fatalf("%s and 4999 more: %d are found, want %d", selectors(0).Key(), n, want)
		}
	}
	moves := object.Event{Old: pod("ns1", "p1", "n1", "a1"), New: pod("ns1", "p1", "n2", "a2")}
	stays := object.Event{Old: moves.New, New: moves.New}
	f(2, func(i int) object.Selector { return selectorOf(t, "", "", "", fmt.Sprint("spec.nodeName=n", i)) }, moves)
	f(1, func(i int) object.Selector { return selectorOf(t, "", "", "", fmt.Sprint("spec.nodeName=n", i)) }, stays)
	f(2, func(i int) object.Selector { return selectorOf(t, "", "", fmt.Sprint("app=a", i), "") }, moves)
	f(1, func(i int) object.Selector { return selectorOf(t, fmt.Sprint("ns", i), "", "app=a1", "") }, moves)
	f(1, func(i int) object.Selector { return selectorOf(t, fmt.Sprint("ns", i), "", "", "") }, moves)
	f(1, func(i int) object.Selector { return selectorOf(t, "ns1", fmt.Sprint("p", i), "", "") }, moves)
	f(1, func(i int) object.Selector { return selectorOf(t, "ns1", "", "", fmt.Sprint("metadata.name=p", i)) }, moves)
	// Two values stand in two places, and one feed is found once.
	f(3, func(i int) object.Selector { return selectorOf(t, "", "", fmt.Sprintf("app in (a%d,a%d)", i, i+1), "") }, moves)
	// What all feeds demand alike is what one of them stands under at most.
	f(3, func(i int) object.Selector {
		return selectorOf(t, "", "", fmt.Sprintf("all=helm,zone!=x,app=a%d", i), "")
	}, moves)
	f(2, func(i int) object.Selector {
		return selectorOf(t, "", "", "all=helm", fmt.Sprintf("status.phase=Running,spec.nodeName=n%d", i))
	}, moves)
	// No value is named.
	f(5000, func(i int) object.Selector { return selectorOf(t, "", "", fmt.Sprintf("app!=a%d,all", i), "") }, moves)
	f(0, func(int) object.Selector { return everything }, object.Event{RV: 9})
}

// What selectors and encodings have in common is made once.
func TestFramesAreMadeOnceForAllFeeds(t *testing.T) {
	w := newWorld(t, plenty)
	var cursors []*Cursor
	for _, sel := range []object.Selector{everything, namespace("a"), except("none")} {
		for _, enc := range []object.Encoding{zipped, metadata} {
			cursors = append(cursors, w.live(sel, enc))
		}
	}
	gone := w.live(app("web"), zipped)
	w.hub.Dispatch()
	w.set("a/x", "web")
	w.set("a/x", "db")
	w.hub.Dispatch()
	if n := len(w.hub.frames.frames); n != 3 {
		t.Fatalf("%d frames were made for the last event, want one per encoding and one for the feed that it leaves", n)
	}
	if n := w.hub.Stats().Frames.Load(); n != uint64(2*len(cursors)+2) {
		t.Fatalf("%d frames are counted", n)
	}
	want, err := w.hub.NewReplayCursor(gone.position, gone.completeRV, app("web"), zipped).Next()
	w.must(err)
	if got, err := gone.feed.next(gone); err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

// next is what a cursor's feed holds for it.
func (f *Feed) next(c *Cursor) ([]byte, error) {
	c.joinFeed()
	run, _ := c.readFeed()
	return run, nil
}

// Clients may come and go as they like while nothing happens: nothing is kept of those that went.
func TestFeedsThatComeAndGoInSilence(t *testing.T) {
	w := newWorld(t, plenty)
	w.hub.Dispatch()
	for i := range 1000 {
		w.live(app(fmt.Sprint(i)), plain).Close()
	}
	kept := w.live(app("web"), plain)
	w.hub.Dispatch()
	kept.Close()
	again := w.live(app("web"), plain)
	if n := len(w.hub.mu.newFeeds) + len(w.hub.mu.leftFeeds); n != 2 {
		t.Fatalf("%d feeds wait for the dispatcher", n)
	}
	w.set("a/x", "web")
	w.hub.Dispatch()
	if n := len(w.hub.index.all); n != 1 {
		t.Fatalf("%d feeds are listed", n)
	}
	w.set("a/x", "web")
	w.hub.Dispatch()
	w.expect(again, "ADDED a/x 102", "MODIFIED a/x 103")
}

// A selector that nothing happens to costs a feed's few words.
func TestSilentFeedIsSmall(t *testing.T) {
	const feeds, most = 10000, 1200
	w := newWorld(t, cache.HistoryLimits{HistoryBytes: 1 << 16})
	w.set("a/x", "web")
	selectors := make([]object.Selector, feeds)
	for i := range selectors {
		selectors[i] = node(fmt.Sprint("node-", i))
	}
	cursors := make([]*Cursor, 0, feeds)
	before := testutil.HeapBytes()
	for i := range selectors {
		cursors = append(cursors, w.live(selectors[i], chunked))
	}
	w.hub.Dispatch()
	for _, c := range cursors {
		w.expect(c)
	}
	w.set("a/x", "web")
	w.hub.Dispatch()
	each := int(testutil.HeapBytes()-before) / feeds
	t.Logf("%d bytes per feed and its cursor", each)
	if each > most {
		t.Fatalf("a feed that nothing happened to costs %d bytes with its cursor, want at most %d", each, most)
	}
	runtime.KeepAlive(cursors)
}
