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
)
