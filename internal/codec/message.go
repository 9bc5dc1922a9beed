package codec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"spillway/internal/object"
)

// message is a Go type of Kubernetes: a struct with a protobuf form of its own.
type message interface {
	Size() int
	// MarshalToSizedBuffer writes the end of a buffer, and returns how many bytes.
	MarshalToSizedBuffer([]byte) (int, error)
}

// newMessage makes an empty object of a resource's kind.
func newMessage(r *object.Resource) (message, error) {
	o, err := scheme.Scheme.New(r.GVR.GroupVersion().WithKind(r.Kind))
	if err != nil {
		return nil, err
	}
	m, ok := o.(message)
	if !ok {
		return nil, fmt.Errorf("kind %s has no protobuf form", r.Kind)
	}
	return m, nil
}

// wholeItem is an object as an item of a list, made once.
func wholeItem(o *object.Object) ([]byte, error) {
	return o.Form(formItem).Get(func() ([]byte, error) { return marshalItem(o.Resource(), o.JSON()) })
}

// wholeMessage is an object as a protobuf message.
func wholeMessage(o *object.Object) ([]byte, error) {
	item, err := wholeItem(o)
	return content(item), err
}

// marshalItem makes the item of a list from an object's JSON.
func marshalItem(r *object.Resource, raw []byte) ([]byte, error) {
	m, err := newMessage(r)
	if err != nil {
		return nil, err
	}
	if err := decode(raw, m); err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	return appendField(nil, fieldItems, m)
}

// appendField appends a message as a field, marshalled in its place.
func appendField(dst []byte, field protowire.Number, m message) ([]byte, error) {
	size := m.Size()
	dst = slices.Grow(dst, fieldSize(size))
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size)) // #nosec G115 -- a size is not negative
	dst = dst[:len(dst)+size]
	n, err := m.MarshalToSizedBuffer(dst[len(dst)-size:])
	if err == nil && n != size {
		err = errSize
	}
	return dst, err
}

var errSize = errors.New("a message is not of the size that it says")

// content is what a field holds that appendField made; nil without a field.
func content(field []byte) []byte {
	_, _, n := protowire.ConsumeTag(field)
	if n < 0 {
		return nil
	}
	value, _ := protowire.ConsumeBytes(field[n:])
	return value
}

// decode reads JSON as upstream's decoder does, and refuses a member that v does not know: v would
// lose it.
func decode(raw []byte, v any) error {
	unknown, err := kjson.UnmarshalStrict(raw, v)
	if err != nil {
		return err
	}
	return errors.Join(unknown...)
}

// metadataItem is an object's PartialObjectMetadata as an item of a list, made once: a field around
// a message with one field.
func metadataItem(o *object.Object) ([]byte, error) {
	return o.Form(formMetadata).Get(func() ([]byte, error) { return encodeMetadata(o) })
}

func encodeMetadata(o *object.Object) ([]byte, error) {
	meta, err := decodeMetadata(o.Resource(), o.Metadata())
	if err != nil {
		return nil, err
	}
	size := fieldSize(meta.Size())
	dst := make([]byte, 0, fieldSize(size))
	dst = protowire.AppendTag(dst, fieldItems, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size)) // #nosec G115 -- a size is not negative
	return appendField(dst, fieldMetadata, meta)
}

func decodeMetadata(r *object.Resource, raw []byte) (*metav1.ObjectMeta, error) {
	meta := &metav1.ObjectMeta{}
	if err := decode(raw, meta); err != nil {
		return nil, fmt.Errorf("metadata of %s: %w", r, err)
	}
	return meta, nil
}

// The numbers of the fields around a resourceVersion, and of its own.
const (
	fieldMetadata        = 1 // of every kind
	fieldResourceVersion = 6 // of ObjectMeta
)

var errShape = errors.New("a message is not of the shape that every kind has")

// withVersion is an object's message with another resourceVersion: what a DELETED shows (W-104).
func withVersion(whole []byte, rv uint64) ([]byte, error) {
	field, wire, n := protowire.ConsumeTag(whole)
	if n < 0 || field != fieldMetadata || wire != protowire.BytesType {
		return nil, errShape
	}
	meta, m := protowire.ConsumeBytes(whole[n:])
	if m < 0 {
		return nil, errShape
	}
	meta, err := metadataWithVersion(meta, rv)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(whole)+32)
	out = protowire.AppendTag(out, fieldMetadata, protowire.BytesType)
	out = protowire.AppendBytes(out, meta)
	return append(out, whole[n+m:]...), nil
}

// metadataWithVersion is withVersion for a message of metadata alone.
func metadataWithVersion(meta []byte, rv uint64) ([]byte, error) {
	for rest := meta; len(rest) > 0; {
		field, wire, tag := protowire.ConsumeTag(rest)
		if tag < 0 {
			return nil, errShape
		}
		value := protowire.ConsumeFieldValue(field, wire, rest[tag:])
		if value < 0 {
			return nil, errShape
		}
		if field == fieldResourceVersion && wire == protowire.BytesType {
			out := append(make([]byte, 0, len(meta)+20), meta[:len(meta)-len(rest)+tag]...)
			out = protowire.AppendString(out, strconv.FormatUint(rv, 10))
			return append(out, rest[tag+value:]...), nil
		}
		rest = rest[tag+value:]
	}
	return nil, errShape
}
