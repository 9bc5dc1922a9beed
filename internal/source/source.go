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
	// Soon reports that Find returns nil only for the moment.
	Soon(gvr schema.GroupVersionResource) bool
}

// Source is one resource that is answered from memory.
type Source struct {
	Hub   *fanout.Hub
	Fresh *freshness.Prover
	// Past supplies events from before the log; nil: there are none.
	Past *backfill.Coordinator
	// Codec knows which encodings are offered; nil offers only the JSON that upstream sent.
	Codec *codec.Codec
	// Warning is upstream's Warning header of every answer about the resource, "" if there is none
	// (W-4); nil: there never is.
	Warning func() string
	// CompressesWatchLists reports whether upstream compresses watch-lists if a client accepts gzip
	// (W-7); nil: it does. Each flush is a gzip member of its own, and several HTTP libraries read
	// only the first. So the proxy sends members only where upstream does.
	CompressesWatchLists func() bool
	// Age is how long ago the state was last known to be upstream's; 0 while it is kept current, and
	// nil: it always is. unreachable says that it is old because the API server does not answer.
	Age func() (age time.Duration, unreachable bool)

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
