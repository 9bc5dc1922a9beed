package codec

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
)

// Template is the bookmark of a resource that upstream has sent none for: the zero value of its Go
// type, as upstream's own is (W-110), or its bare type if there is no Go type here.
func Template(r *object.Resource) *object.Bookmark {
	if r.Builtin {
		if b, err := zeroBookmark(r); err == nil {
			return b
		}
	}
	return object.NewBookmark(r)
}

func zeroBookmark(r *object.Resource) (*object.Bookmark, error) {
	zero, err := newMessage(r)
	if err != nil {
		return nil, err
	}
	setConversionDefaults(zero)
	raw, err := json.Marshal(zero)
	if err != nil {
		return nil, err
	}
	t := typeOf(r, object.Whole)
	raw = append([]byte(`{"kind":"`+t.Kind+`","apiVersion":"`+t.APIVersion+`",`), raw[1:]...)
	return object.BookmarkFrom(r, raw)
}

// setConversionDefaults sets the fields of a zero value that upstream's conversion from its
// internal type sets.
func setConversionDefaults(zero message) {
	var none int32
	switch o := zero.(type) {
	case *appsv1.Deployment:
		o.Spec.Replicas = &none
	case *appsv1.ReplicaSet:
		o.Spec.Replicas = &none
	case *appsv1.StatefulSet:
		o.Spec.Replicas = &none
	case *appsv1.DaemonSet:
		o.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "0"}
	}
}

// AppendBookmark appends the object of a BOOKMARK event as a document of its own.
func AppendBookmark(dst []byte, enc object.Encoding, b *object.Bookmark, rv uint64, end bool) ([]byte, error) {
	if enc.Format == object.JSON && enc.View == object.Whole {
		return b.Append(dst, rv, end), nil
	}
	raw := b.Append(nil, rv, end)
	if enc.View == object.Whole {
		item, err := marshalItem(b.Resource(), raw)
		return appendDocument(dst, typeOf(b.Resource(), enc.View), content(item)), err
	}
	var partial metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &partial); err != nil {
		return dst, err
	}
	if enc.Format == object.Protobuf {
		msg, err := partial.Marshal()
		return appendDocument(dst, typeOf(b.Resource(), enc.View), msg), err
	}
	partial.TypeMeta = typeOf(b.Resource(), enc.View)
	text, err := json.Marshal(&partial)
	return append(dst, text...), err
}
