package backfill

import (
	"context"

	"spillway/internal/object"
)

// HistorySource is upstream's history of the resource, from before the log begins.
type HistorySource interface {
	// Begin finds an API server to read from. rv is how far its storage was, at some moment since the
	// call.
	Begin(ctx context.Context) (rv uint64, w HistoryWatch, err error)
}

// HistoryWatch is one watch upstream, of an API server that was just made current (design D7). One
// goroutine uses it.
type HistoryWatch interface {
	// Watch begins to read what a selector shows after from, for about three seconds.
	Watch(ctx context.Context, sel object.Selector, from uint64) error
	// Next is the next event; without an object it is a bookmark. io.EOF is the end of the watch,
	// which proves nothing.
	Next() (t object.Type, o *object.Object, rv uint64, err error)
	Close()
}
