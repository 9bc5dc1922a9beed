package codec

import (
	"encoding/json"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"spillway/internal/object"
)

// Append appends an object as a document of its own: the content of a watch event, or of the answer
// to a GET, without JSON's newline. rv is the object's resourceVersion, or that of its deletion
// (W-104). Chunks and gzip are left to the caller.
func Append(dst []byte, enc object.Encoding, o *object.Object, rv uint64) ([]byte, error) {
	if enc.Format != object.Protobuf {
		return appendJSON(dst, enc.View, o, rv)
	}
	msg, err := messageAt(enc.View, o, rv)
	if err != nil {
		return dst, err
	}
	return appendDocument(dst, typeOf(o.Resource(), enc.View), msg), nil
}

func appendJSON(dst []byte, v object.View, o *object.Object, rv uint64) ([]byte, error) {
	digits := strconv.FormatUint(rv, 10)
	switch {
	case v == object.Whole && rv == o.RV:
		return append(dst, o.JSON()...), nil
	case v == object.Whole:
		return o.AppendAt(dst, digits), nil
	}
	dst = appendPartialHead(dst, v)
	var err error
	switch {
	case rv == o.RV:
		var meta []byte
		meta, err = metadataJSON(o)
		dst = append(dst, meta...)
	case o.Resource().Builtin:
		dst = o.AppendMetadataAt(dst, digits)
	default:
		var meta []byte
		meta, err = reorder(o.Resource(), o.AppendMetadataAt(nil, digits))
		dst = append(dst, meta...)
	}
	return append(dst, '}'), err
}

// appendPartialHead appends what stands in front of the metadata of a PartialObjectMetadata (W-45).
func appendPartialHead(dst []byte, v object.View) []byte {
	t := typeOf(nil, v)
	dst = append(dst, `{"kind":"`...)
	dst = append(dst, t.Kind...)
	dst = append(dst, `","apiVersion":"`...)
	dst = append(dst, t.APIVersion...)
	return append(dst, `","metadata":`...)
}

// metadataJSON is an object's metadata in Go's field order. Built-in objects have it so; those of
// custom resources have their keys sorted (W-8), and are decoded and encoded once.
func metadataJSON(o *object.Object) ([]byte, error) {
	if o.Resource().Builtin {
		return o.Metadata(), nil
	}
	return o.Form(formMetadataJSON).Get(func() ([]byte, error) { return reorder(o.Resource(), o.Metadata()) })
}

// reorder puts the members of metadata into Go's field order.
func reorder(r *object.Resource, raw []byte) ([]byte, error) {
	meta, err := decodeMetadata(r, raw)
	if err != nil {
		return nil, err
	}
	return json.Marshal(meta)
}

// messageAt is an object's protobuf message in a view, at resourceVersion rv.
func messageAt(v object.View, o *object.Object, rv uint64) ([]byte, error) {
	if v == object.Whole {
		msg, err := wholeMessage(o)
		if err == nil && rv != o.RV {
			return withVersion(msg, rv)
		}
		return msg, err
	}
	item, err := metadataItem(o)
	if err != nil || rv == o.RV {
		return content(item), err
	}
	meta, err := metadataWithVersion(content(content(item)), rv)
	if err != nil {
		return nil, err
	}
	return partialMessage(meta), nil
}

// Status is a failure as a document of its own, in a format that the client understands (W-10,
// W-47); JSON without its newline.
func Status(f object.Format, s *metav1.Status) ([]byte, error) {
	if f == object.Protobuf {
		msg, err := s.Marshal()
		return appendDocument(nil, s.TypeMeta, msg), err
	}
	raw, err := json.Marshal(s)
	if err == nil && f == object.YAML {
		return yaml.JSONToYAML(raw)
	}
	return raw, err
}
