package backfill

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"spillway/internal/cache"
	"spillway/internal/fanout"
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
	chunked   = object.Encoding{Chunked: true}
	bookmarks = object.Encoding{Chunked: true, Bookmarks: true}
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
	hub      *fanout.Hub
	clock    time.Time
	rv       uint64
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

var everything object.Selector
