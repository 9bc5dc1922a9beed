package object

import "k8s.io/apimachinery/pkg/runtime"

// Encoding names everything that changes the bytes of an event or of a document on the wire: two
// clients with equal encodings and selectors receive the same bytes. Comparable, so that it is a
// map key. The zero value is the bare JSON of whole objects, as upstream sent it; every other one
// is made from that.
type Encoding struct {
	Format Format
	View   View
	// Chunked says that every frame is an HTTP/1.1 chunk. HTTP/2 carries bare events.
	Chunked bool
	// WebSocket says that every event is a frame of a WebSocket (W-120). It is neither chunked nor
	// gzipped.
	WebSocket bool
	// Gzip says that the content is gzipped: each frame of a watch, or run of its initial frames, as a
	// member of its own (W-7), a list as one stream (W-6).
	Gzip bool
	// Bookmarks says that the client asked for bookmarks, so that its feed may carry one.
	Bookmarks bool
}

// Format is how an object is written down (W-40).
type Format uint8

// The formats that are made here, YAML of failures alone.
const (
	JSON Format = iota
	YAML
	Protobuf
)

// View is what of an object is shown (W-43).
type View uint8

// The views that are made here: the whole object, or its metadata as a PartialObjectMetadata of
// meta.k8s.io in one of two versions (W-45).
const (
	Whole View = iota
	Metadata
	MetadataV1beta1
)

// Bare is the encoding of what a chunk, a gzip member or a frame of a WebSocket holds.
func (e Encoding) Bare() Encoding {
	e.Chunked, e.Gzip, e.WebSocket = false, false, false
	return e
}

// MediaType is the Content-Type of a document in this encoding. Views add nothing to it (W-41).
func (e Encoding) MediaType() string {
	switch e.Format {
	case YAML:
		return runtime.ContentTypeYAML
	case Protobuf:
		return runtime.ContentTypeProtobuf
	default:
		return runtime.ContentTypeJSON
	}
}

// StreamMediaType is the Content-Type of a watch in this encoding: only protobuf says that it is a
// stream (W-41).
func (e Encoding) StreamMediaType() string {
	if e.Format == Protobuf {
		return runtime.ContentTypeProtobuf + ";stream=watch"
	}
	return e.MediaType()
}
