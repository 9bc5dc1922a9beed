package fanout

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"spillway/internal/cache"
	"spillway/internal/object"
	"spillway/internal/object/objecttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What tests of other packages share.
var (
	pods                         = objecttest.Pods
	namespace, app, node, except = objecttest.InNamespace, objecttest.WithApp, objecttest.OnNode, objecttest.NotOnNode
	drain, decode                = objecttest.Drain, objecttest.Decode
)

var (
	plain     = object.Encoding{}
	chunked   = object.Encoding{Chunked: true}
	bookmarks = object.Encoding{Chunked: true, Bookmarks: true}
	zipped    = object.Encoding{Chunked: true, Bookmarks: true, Gzip: true}
	whole     = object.Encoding{Format: object.Protobuf}
	metadata  = object.Encoding{Format: object.Protobuf, View: object.Metadata, Chunked: true, Bookmarks: true}
)

// made is a frame that nothing keeps from being made.
func made(frame []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return frame
}

// plenty keeps every event of a test.
var plenty = cache.HistoryLimits{HistoryBytes: 1 << 40, HistoryMinAge: time.Hour}

// world is one resource, its hub, and an upstream that numbers what it does.
type world struct {
	testing.TB
	resource *cache.Resource
	hub      *Hub
	clock    time.Time
	rv       uint64
}

func newWorld(t testing.TB, limits cache.HistoryLimits) *world {
	w := &world{TB: t, clock: time.Unix(1e9, 0), rv: 100}
	w.resource = cache.New(pods, limits, func() time.Time { return w.clock })
	w.hub = NewHub(w.resource)
	w.replace()
	return w
}

// pod makes an object; app is its label, and its JSON is padded by pad bytes.
func (w *world) pod(key, app string, rv uint64, pad int) *object.Object {
	w.Helper()
	return objecttest.Pod(w, key, app, rv, pad)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) set(key, app string) { w.setPadded(key, app, 0) }

func (w *world) setPadded(key, app string, pad int) {
	w.Helper()
	w.rv++
	w.must(w.resource.Update(w.pod(key, app, w.rv, pad)))
}

func (w *world) delete(key string) {
	w.Helper()
	w.rv++
	w.must(w.resource.Delete(w.pod(key, "", w.rv, 0)))
}

// progress is upstream's bookmark.
func (w *world) progress() {
	w.Helper()
	w.rv++
	w.must(w.resource.Bookmark(object.NewBookmark(pods), w.rv))
}

// replace is a relist at the present.
func (w *world) replace(objects ...*object.Object) {
	w.Helper()
	w.rv++
	w.must(w.resource.Replace(objects, w.rv))
}

// kept are the objects of the state with the given keys.
func (w *world) kept(keys ...string) []*object.Object {
	w.Helper()
	var all []*object.Object
	for _, key := range keys {
		o, ok := w.resource.Snapshot().Get(key)
		if !ok {
			w.Fatalf("no object %s", key)
		}
		all = append(all, o)
	}
	return all
}

// live makes a cursor that begins at the present state.
func (w *world) live(sel object.Selector, enc object.Encoding) *Cursor {
	s := w.resource.Snapshot()
	return w.hub.ViewFor("").CursorAt(s.Next, s.RV, sel, enc)
}

func (w *world) resume(rv uint64, sel object.Selector, enc object.Encoding) *Cursor {
	w.Helper()
	c, err := w.hub.ViewFor("").CursorFromRV(rv, sel, enc)
	w.must(err)
	return c
}

// expect checks what a cursor returns until it has nothing more.
func (w *world) expect(c *Cursor, want ...string) {
	w.Helper()
	run, err := drain(c)
	w.must(err)
	if got := decode(w, run, c.encoding); fmt.Sprint(got) != fmt.Sprint(want) {
		w.Fatalf("got  %q\nwant %q", got, want)
	}
}

// expectError checks that a cursor returns nothing but an error, now and forever.
func (w *world) expectError(c *Cursor, want string) {
	w.Helper()
	for range 2 {
		run, err := drain(c)
		if len(run) > 0 || err == nil || err.Error() != want {
			w.Fatalf("got %q and error %v, want only %q", run, err, want)
		}
	}
}

var everything object.Selector
