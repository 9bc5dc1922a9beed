package codec

import (
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
)

// What stands around every protobuf document (W-133): a magic, and a runtime.Unknown whose members
// are the type, the message, and two empty strings.
const (
	magic        = "k8s\x00"
	documentTail = "\x1a\x00\x22\x00"
)

// typeOf is the type that an object shows in a view.
func typeOf(r *object.Resource, v object.View) metav1.TypeMeta {
	switch v {
	case object.Metadata:
		return metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}
	case object.MetadataV1beta1:
		return metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1beta1"}
	default:
		return metav1.TypeMeta{Kind: r.Kind, APIVersion: r.APIVersion()}
	}
}

// listTypeOf is the type that a list of them has.
func listTypeOf(r *object.Resource, v object.View) metav1.TypeMeta {
	t := typeOf(r, v)
	if v == object.Whole {
		t.Kind = r.ListKind
	} else {
		t.Kind += "List"
	}
	return t
}

// appendDocumentHead appends what is in front of a message of size bytes.
func appendDocumentHead(dst []byte, t metav1.TypeMeta, size int) []byte {
	dst = append(dst, magic...)
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendVarint(
		dst, uint64(fieldSize(len(t.APIVersion))+fieldSize(len(t.Kind)))) // #nosec G115 -- a size is not negative
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendString(dst, t.APIVersion)
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	dst = protowire.AppendString(dst, t.Kind)
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(size)) // #nosec G115 -- a size is not negative
}

// appendDocument appends a message in its envelope.
func appendDocument(dst []byte, t metav1.TypeMeta, msg []byte) []byte {
	dst = appendDocumentHead(dst, t, len(msg))
	dst = append(dst, msg...)
	return append(dst, documentTail...)
}

// fieldSize is the size of a field with a number below 16 and a content of n bytes.
func fieldSize(n int) int { return 1 + protowire.SizeBytes(n) }

// fieldItems are the items of a list, of every kind but v1beta1's PartialObjectMetadataList (see
// listFields).
const fieldItems = 2

// partialMessage is a PartialObjectMetadata around its only field.
func partialMessage(meta []byte) []byte {
	out := make([]byte, 0, fieldSize(len(meta)))
	out = protowire.AppendTag(out, fieldMetadata, protowire.BytesType)
	return protowire.AppendBytes(out, meta)
}
