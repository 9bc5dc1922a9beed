package cache

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var pods = object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)

// unlimited keeps every event.
var unlimited = HistoryLimits{HistoryBytes: 1 << 40, HistoryMinAge: time.Hour}

// pod is a version of n/name; by default its UID is its name.
func pod(t testing.TB, name string, rv uint64, extra ...string) *object.Object {
	t.Helper()
	uid, phase := name, ""
	if len(extra) > 0 {
		uid = extra[0]
	}
	if len(extra) > 1 {
		phase = extra[1]
	}
	o, err := pods.Parse(fmt.Appendf(
		nil, `{"metadata":{"name":%q,"namespace":"n","uid":%q,"resourceVersion":"%d"},"status":{"phase":%q}}`, name, uid, rv,
		phase))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func newPods(limits HistoryLimits) *Resource {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return New(pods, limits, func() time.Time { return start })
}

// state is what a client believes: by key, the version and the UID of each object.
type state map[string]string

func version(o *object.Object) string { return fmt.Sprintf("%s@%d", o.UID, o.RV) }

func stateOf(s *Snapshot) state {
	out := state{}
	s.Scan(object.Selector{}, "", func(o *object.Object) bool {
		out[o.Key] = version(o)
		return true
	})
	return out
}

// apply does to a client's state what an event tells it.
func (s state) apply(e *object.Event) {
	switch {
	case e.New != nil:
		s[e.New.Key] = version(e.New)
	case e.Old != nil:
		delete(s, e.Old.Key)
	}
}

func (s state) String() string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(s)) {
		all = append(all, strings.TrimPrefix(k, "n/")+"="+s[k])
	}
	return strings.Join(all, " ")
}

// checkState compares the current state, written as "name=uid@rv name=uid@rv".
func checkState(t *testing.T, r *Resource, rv uint64, want string) {
	t.Helper()
	s := r.Snapshot()
	if got := stateOf(s).String(); got != want || s.RV != rv || r.CompleteRV() != rv {
		t.Errorf("state at %d: %s\nwant at %d: %s", s.RV, got, rv, want)
	}
	if s.Next != r.Log().Head() {
		t.Errorf("the snapshot is followed by position %d, the head is %d", s.Next, r.Log().Head())
	}
	var size int64
	s.Scan(object.Selector{}, "", func(o *object.Object) bool { size += int64(o.Size()); return true })
	if size != s.Bytes {
		t.Errorf("the snapshot counts %d bytes, its objects have %d", s.Bytes, size)
	}
}

// logFrom writes the log from a position: each entry as "type name@rv", in a seam with its part.
func logFrom(t *testing.T, l *Log, pos uint64) string {
	t.Helper()
	var all []string
	for ; pos < l.Head(); pos++ {
		e, ok := l.EntryAt(pos)
		if !ok {
			t.Fatalf("position %d is gone", pos)
		}
		all = append(all, describe(e))
	}
	return strings.Join(all, " ")
}

func describe(e *Entry) string {
	text := fmt.Sprintf("progress@%d", e.RV)
	if typ, o, ok := (object.Selector{}).EventFor(&e.Event); ok {
		text = fmt.Sprintf("%s-%s@%d", strings.ToLower(typ.String()), o.Name(), e.RV)
	}
	if e.Seam == NoSeam {
		return text
	}
	return text + [...]string{"", "/deletion", "/change", "/end"}[e.Seam]
}

func TestNothingBeforeTheFirstList(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Add(pod(t, "a", 5))
	_ = r.Update(pod(t, "a", 6))
	_ = r.Delete(pod(t, "a", 7))
	_ = r.Bookmark(object.NewBookmark(pods), 8)
	if r.IsReady() || r.Snapshot() != nil || r.CompleteRV() != 0 || r.Log().Head() != 1 {
		t.Fatalf("ready before the first list: through %d, head %d", r.CompleteRV(), r.Log().Head())
	}
	if _, err := r.SnapshotAt(5); !errors.Is(err, ErrNotReached) {
		t.Fatalf("At(5) = %v", err)
	}
}

func TestChangesInOrder(t *testing.T) {
	r := newPods(unlimited)
	changed := r.Changed()
	_ = r.Replace([]*object.Object{pod(t, "b", 3), pod(t, "a", 7)}, 10)
	<-changed
	checkState(t, r, 10, "a=a@7 b=b@3")
	start := r.Snapshot()

	step := func(change func(*object.Object) error, o *object.Object, want string) {
		t.Helper()
		changed := r.Changed()
		if err := change(o); err != nil {
			t.Fatal(err)
		}
		<-changed
		checkState(t, r, o.RV, want)
	}
	step(r.Add, pod(t, "c", 11), "a=a@7 b=b@3 c=c@11")
	step(r.Update, pod(t, "a", 12), "a=a@12 b=b@3 c=c@11")
	step(r.Delete, pod(t, "b", 13), "a=a@12 c=c@11")
	step(r.Delete, pod(t, "unknown", 14), "a=a@12 c=c@11")
	step(r.Add, pod(t, "b", 15, "b2"), "a=a@12 b=b2@15 c=c@11")
	if got, want := logFrom(t, r.Log(), start.Next),
		"added-c@11 modified-a@12 deleted-b@13 progress@14 added-b@15"; got != want {
		t.Errorf("log %s\nwant %s", got, want)
	}
	// What was published stays as it was.
	if got := stateOf(start).String(); got != "a=a@7 b=b@3" {
		t.Errorf("the first snapshot became %s", got)
	}
	// A deletion shows the version that the cache held.
	if e, ok := r.Log().EntryAt(start.Next + 2); !ok || e.New != nil || e.Old.RV != 3 || e.RV != 13 || e.CompleteRV != 13 {
		t.Errorf("deletion %+v", e)
	}
}

// After a reconnect the API server may repeat what it said before.
func TestWhatWasDeliveredIsIgnored(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace([]*object.Object{pod(t, "a", 7), pod(t, "b", 8)}, 10)
	head := r.Log().Head()
	for _, rv := range []uint64{1, 7, 10} {
		_ = r.Add(pod(t, "c", rv))
		_ = r.Update(pod(t, "a", rv))
		_ = r.Delete(pod(t, "b", rv))
		_ = r.Bookmark(object.NewBookmark(pods), rv)
		r.Progress(rv, r.Generation())
	}
	checkState(t, r, 10, "a=a@7 b=b@8")
	if r.Log().Head() != head {
		t.Errorf("log %s", logFrom(t, r.Log(), head))
	}
}

func TestBookmarkIsProgressAndTemplate(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace(nil, 10)
	head := r.Log().Head()
	b, err := object.BookmarkFrom(
		pods, []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"20"},"spec":{"containers":null}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(r.BookmarkTemplate().Append(nil, 1,
		false)); got != `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1"}}` {
		t.Errorf("template before the first bookmark: %s", got)
	}
	_ = r.Bookmark(b, 20)
	checkState(t, r, 20, "")
	if r.BookmarkTemplate() != b || logFrom(t, r.Log(), head) != "progress@20" {
		t.Errorf("template %v, log %s", r.BookmarkTemplate(), logFrom(t, r.Log(), head))
	}
	r.Progress(30, r.Generation()+1) // observed in another generation
	checkState(t, r, 20, "")
	r.Progress(30, r.Generation())
	checkState(t, r, 30, "")
}

func TestAScanYieldsTheSelectedObjectsInOrder(t *testing.T) {
	r := newPods(unlimited)
	var objects []*object.Object
	for _, key := range []string{"o/z", "o1/z", "o/k", "o-x/z", "o/k-1", "o0x/z", "o/k.1", "o/k0"} {
		ns, name, _ := strings.Cut(key, "/")
		o, err := pods.Parse(fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":%q,"resourceVersion":"5"}}`, name, ns))
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	_ = r.Replace(objects, 10)
	f := func(namespace, name, from string, limit int, want string) {
		t.Helper()
		var keys []string
		r.Snapshot().Scan(object.Selector{Namespace: namespace, Name: name}, from, func(o *object.Object) bool {
			keys = append(keys, o.Key)
			return len(keys) < limit
		})
		if got := strings.Join(keys, ", "); got != want {
			t.Errorf("scope %q %q from %q: %s\nwant %s", namespace, name, from, got, want)
		}
	}
	// The API server's order is that of its storage keys (W-61).
	f("", "", "", 100, "o-x/z, o/k, o/k-1, o/k.1, o/k0, o/z, o0x/z, o1/z")
	f("", "", "o/k.1", 3, "o/k.1, o/k0, o/z")
	f("", "", "o/k.1\x00", 1, "o/k0")
	f("o", "", "", 100, "o/k, o/k-1, o/k.1, o/k0, o/z")
	f("o", "", "o/k-1\x00", 2, "o/k.1, o/k0")
	f("o", "k", "", 100, "o/k")
	f("o", "k", "o/k\x00", 100, "")
	f("", "z", "", 100, "o-x/z, o/z, o0x/z, o1/z")
	f("", "z", "o/", 100, "o/z, o0x/z, o1/z")
	f("p", "", "", 100, "")
	f("o", "none", "", 100, "")
	// The start is the client's word: it does not lead out of the namespace, on either side (W-81,
	// W-82).
	f("o", "", "a/a", 1, "o/k")
	f("o", "", "o0x/z", 100, "")
	f("o", "", "zzz", 100, "")
	if o, ok := r.Snapshot().Get("o/k"); !ok || o.Name() != "k" {
		t.Error("o/k is not found")
	}
	if _, ok := r.Snapshot().Get("o/none"); ok || r.Snapshot().Len() != 8 {
		t.Error("o/none is found")
	}
}

func TestSnapshotScanClusterScoped(t *testing.T) {
	nodes := object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "Node", false, true)
	r := New(nodes, unlimited, time.Now)
	_ = r.Replace(nil, 5)
	scan := func(sel object.Selector, from string) (keys []string) {
		r.Snapshot().Scan(sel, from, func(o *object.Object) bool { keys = append(keys, o.Key); return true })
		return keys
	}
	if keys := scan(object.Selector{Name: "b"}, ""); keys != nil {
		t.Errorf("in an empty state: %v", keys)
	}
	for i, name := range []string{"c", "a", "b"} {
		o, err := nodes.Parse(fmt.Appendf(nil, `{"metadata":{"name":%q,"resourceVersion":"%d"}}`, name, 10+i))
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Add(o)
	}
	if keys := scan(object.Selector{}, ""); !slices.Equal(keys, []string{"a", "b", "c"}) {
		t.Errorf("all: %v", keys)
	}
	if keys := scan(object.Selector{Name: "b"}, ""); !slices.Equal(keys, []string{"b"}) {
		t.Errorf("b: %v", keys)
	}
	if keys := scan(object.Selector{Name: "b"}, "c"); keys != nil {
		t.Errorf("b from c: %v", keys)
	}
	if keys := scan(object.Selector{Namespace: "n"}, ""); keys != nil {
		t.Errorf("in a namespace: %v", keys)
	}
}
