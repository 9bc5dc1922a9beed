package serve

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/fanout"
)

// Catalog knows which resources are answered from memory. It never blocks: a resource whose first state is still on its
// way has a Source that is not Ready.
type Catalog interface {
	// Find returns the source of a resource, or nil if its requests go upstream.
	Find(gvr schema.GroupVersionResource) *Source
	// Knows reports whether Find may return one, now or when it is asked again. It starts nothing.
	Knows(gvr schema.GroupVersionResource) bool
}

// Source is one resource that is answered from memory.
type Source struct {
	Hub   *fanout.Hub
	Fresh *cache.Freshness
	// Codec knows which encodings are offered; nil offers the JSON that upstream sent, and nothing else.
	Codec *codec.Codec
	// Warning is what upstream says in the Warning header of every answer about the resource, "" if nothing (W-4); nil: never
	// anything.
	Warning func() string
}

// Resource is the state behind the source.
func (s *Source) Resource() *cache.Resource { return s.Hub.Resource() }

// warn sets the header that warns of the resource, if there is anything to warn of.
func (s *Source) warn(set func(key, value string)) {
	if s.Warning == nil {
		return
	}
	if text := s.Warning(); text != "" {
		set("Warning", text)
	}
}
