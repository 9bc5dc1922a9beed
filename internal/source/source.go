package source

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/backfill"
	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/fanout"
	"spillway/internal/freshness"
)

// Catalog knows which resources are answered from memory. It never blocks: a resource whose first
// state is still on its way has a Source that is not ready.
type Catalog interface {
	// Find returns the source of a resource, or nil if its requests go upstream.
	Find(gvr schema.GroupVersionResource) *Source
	// Knows reports whether Find may return one, now or in a later call. It starts nothing.
	Knows(gvr schema.GroupVersionResource) bool
	// Soon reports that Find returns nil for the moment alone.
	Soon(gvr schema.GroupVersionResource) bool
}

// Source is one resource that is answered from memory.
type Source struct {
	Hub   *fanout.Hub
	Fresh *freshness.Prover
	// Past has what happened before the log begins; nil: nothing has.
	Past *backfill.Coordinator
	// Codec knows which encodings are offered; nil offers the JSON that upstream sent, and nothing
	// else.
	Codec *codec.Codec
	// Warning is what upstream says in the Warning header of every answer about the resource, "" if
	// nothing (W-4); nil: never anything.
	Warning func() string
	// CompressesWatchLists reports whether upstream does, if a client accepts gzip (W-7). Each
	// flush is a gzip member of its own, and several HTTP libraries read the first alone, so where
	// upstream sends none, nor do we. nil: it does.
	CompressesWatchLists func() bool
	// Age is how long ago the state was last known to be upstream's, if it is not kept current, and
	// whether that is since the API server does not answer; 0 while it is kept current; nil: it
	// always is.
	Age func() (age time.Duration, away bool)

	used atomic.Bool
}

// Resource is the state behind the source.
func (s *Source) Resource() *cache.Resource { return s.Hub.Resource() }

// FirstUse reports true to its first caller alone.
func (s *Source) FirstUse() bool { return !s.used.Load() && !s.used.Swap(true) }

// GzipsWatchLists reports whether a watch-list is gzipped for clients that accept that.
func (s *Source) GzipsWatchLists() bool {
	return s.CompressesWatchLists == nil || s.CompressesWatchLists()
}

// WarningText is the Warning of every answer about the resource, "" if there is none.
func (s *Source) WarningText() string {
	if s.Warning == nil {
		return ""
	}
	return s.Warning()
}
