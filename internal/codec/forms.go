package codec

import "spillway/internal/object"

// What is kept of what was made of objects (see object.Form).
const (
	// formItem is the whole object as an item of a list in protobuf: a field around the message.
	formItem object.FormKind = iota
	// formMetadata is its PartialObjectMetadata as an item of a list in protobuf.
	formMetadata
	// formMetadataJSON is its metadata in Go's field order, where upstream's JSON of the object has another.
	formMetadataJSON
	// formSegment is a run of objects as a segment of a gzipped list. From here on each encoding has its own.
	formSegment
)

// segmentForm is the form of a segment in an encoding.
func segmentForm(enc object.Encoding) object.FormKind {
	return formSegment + object.FormKind(enc.Format)*8 + object.FormKind(enc.View)
}
