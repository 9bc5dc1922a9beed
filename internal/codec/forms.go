package codec

import "spillway/internal/object"

// The forms of objects that are kept (see object.Form).
const (
	// formItem is the whole object as an item of a list in protobuf: a field around the message.
	formItem object.FormKind = iota
	// formMetadata is its PartialObjectMetadata as an item of a list in protobuf.
	formMetadata
	// formMetadataJSON is its metadata in Go's field order, of custom resources: upstream's JSON of
	// these is sorted.
	formMetadataJSON
	// formSegment is a run of objects as a segment of a gzipped list. Each encoding has its own.
	formSegment
	// formMember is a run of objects as a gzip member of a watch. Each encoding has its own.
	formMember = formSegment + encodings
)

const (
	encodings = 64            // more than there are, without gzip
	views     = encodings / 8 // of each format
)

// segmentForm is the form of a segment in an encoding.
func segmentForm(enc object.Encoding) object.FormKind { return formSegment + encodingNumber(enc) }

// memberForm is the form of a member in an encoding.
func memberForm(enc object.Encoding) object.FormKind { return formMember + encodingNumber(enc) }

func encodingNumber(enc object.Encoding) object.FormKind {
	return object.FormKind(enc.Format)*views + object.FormKind(enc.View)
}

// Encodes reports that a form is one object in another encoding. All others are runs of objects,
// compressed.
func Encodes(kind object.FormKind) bool { return kind < formSegment }
