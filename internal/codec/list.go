package codec

import (
	"bytes"
	"io"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
)

// List is a list as a document: what stands around the items, and the items' own bytes, spliced while it is written and never
// assembled. It pins the objects until then.
//
// Every item is encoded before anything is written: only then is the size known, and that all of them can be.
type List struct {
	enc       object.Encoding
	items     []*object.Object
	head      []byte
	separator string
	tail      []byte
	size      int
}

// NewList makes the list of items, which it keeps, in JSON or protobuf, without gzip.
func NewList(enc object.Encoding, r *object.Resource, items []*object.Object, meta metav1.ListMeta) (*List, error) {
	l := &List{enc: enc, items: items}
	switch {
	case enc.Format == object.Protobuf:
		return l, l.frameProtobuf(r, meta)
	case enc.View != object.Whole:
		l.framePartial(r, meta)
	case r.Builtin:
		l.frameBuiltin(r, meta)
	default:
		l.frameCustom(r, meta)
	}
	l.separator = ","
	return l, l.measure(len(l.head) + len(l.tail) - min(len(items), 1))
}

// frameBuiltin is the order of Go's fields (W-60).
func (l *List) frameBuiltin(r *object.Resource, meta metav1.ListMeta) {
	l.head = appendListHead(nil, listTypeOf(r, l.enc.View), meta)
	l.head = append(l.head, '[')
	l.tail = []byte("]}\n")
}

// framePartial is W-45: without items there is a null.
func (l *List) framePartial(r *object.Resource, meta metav1.ListMeta) {
	l.frameBuiltin(r, meta)
	if len(l.items) == 0 {
		l.head = append(l.head[:len(l.head)-1], "null"...)
		l.tail = []byte("}\n")
	}
}

// frameCustom has its keys sorted, and a continue member even if there is nothing to continue with (W-60).
func (l *List) frameCustom(r *object.Resource, meta metav1.ListMeta) {
	t := listTypeOf(r, l.enc.View)
	l.head = append(l.head, `{"apiVersion":"`+t.APIVersion+`","items":[`...)
	l.tail = append(l.tail, `],"kind":"`+t.Kind+`","metadata":{"continue":"`+meta.Continue+`"`...)
	l.tail = appendRemaining(l.tail, meta)
	l.tail = append(l.tail, `,"resourceVersion":"`+meta.ResourceVersion+"\"}}\n"...)
}

// appendListHead appends everything up to the value of items. Neither tokens nor resourceVersions need an escape.
func appendListHead(dst []byte, t metav1.TypeMeta, meta metav1.ListMeta) []byte {
	dst = append(dst, `{"kind":"`+t.Kind+`","apiVersion":"`+t.APIVersion+`","metadata":{"resourceVersion":"`+meta.ResourceVersion+`"`...)
	if meta.Continue != "" {
		dst = append(dst, `,"continue":"`+meta.Continue+`"`...)
	}
	dst = appendRemaining(dst, meta)
	return append(dst, `},"items":`...)
}

func appendRemaining(dst []byte, meta metav1.ListMeta) []byte {
	if meta.RemainingItemCount == nil {
		return dst
	}
	dst = append(dst, `,"remainingItemCount":`...)
	return strconv.AppendInt(dst, *meta.RemainingItemCount, 10)
}

// listFields are the fields that hold a list's metadata and its items. In v1beta1's PartialObjectMetadataList they stand the
// other way around.
func listFields(v object.View) (metadata, items protowire.Number) {
	if v == object.MetadataV1beta1 {
		return 2, 1
	}
	return 1, 2
}

// frameProtobuf is W-133. The head holds the size of all that follows it.
func (l *List) frameProtobuf(r *object.Resource, meta metav1.ListMeta) error {
	msg, err := meta.Marshal()
	if err != nil {
		return err
	}
	field, items := listFields(l.enc.View)
	own := protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), msg)
	if err := l.measure(len(own)); err != nil {
		return err
	}
	l.head = appendDocumentHead(nil, listTypeOf(r, l.enc.View), l.size)
	if items < field {
		l.tail = own
	} else {
		l.head = append(l.head, own...)
	}
	l.tail = append(l.tail, documentTail...)
	l.size += len(l.head) + len(l.tail) - len(own)
	return nil
}

// measure sets the size: that of the items and of what stands around them.
func (l *List) measure(around int) error {
	l.size = around
	for _, o := range l.items {
		n, err := l.itemSize(o)
		if err != nil {
			return err
		}
		l.size += n
	}
	return nil
}

// itemSize is the number of bytes that appendItem appends, with the separator.
func (l *List) itemSize(o *object.Object) (int, error) {
	switch {
	case l.enc.Format == object.Protobuf && l.enc.View == object.Whole:
		msg, err := wholeMessage(o)
		return fieldSize(len(msg)), err
	case l.enc.Format == object.Protobuf:
		msg, err := metadataMessage(o)
		return fieldSize(fieldSize(len(msg))), err
	case l.enc.View == object.Whole:
		return o.ItemSize() + 1, nil
	}
	meta, err := metadataJSON(o)
	var head [128]byte
	return len(appendPartialHead(head[:0], l.enc.View)) + len(meta) + len("},"), err
}

// appendItem appends an item. measure has seen that it can be encoded.
func (l *List) appendItem(dst []byte, o *object.Object) []byte {
	if l.enc.Format != object.Protobuf {
		if l.enc.View == object.Whole {
			return o.AppendItem(dst)
		}
		dst, _ = appendJSON(dst, l.enc.View, o, o.RV)
		return dst
	}
	msg, _ := messageAt(l.enc.View, o, o.RV)
	_, field := listFields(l.enc.View)
	return protowire.AppendBytes(protowire.AppendTag(dst, field, protowire.BytesType), msg)
}

// Size is the number of bytes of the document.
func (l *List) Size() int { return l.size }

// pieceSize is how much of a list is written at once (design D10a).
const pieceSize = 256 << 10

// WriteTo writes the list in pieces of about pieceSize, and lets go of the objects. It can be called once.
func (l *List) WriteTo(w io.Writer) (int64, error) {
	var written int64
	piece := make([]byte, 0, min(l.size, pieceSize+pieceSize/4))
	flush := func() error {
		n, err := w.Write(piece)
		written += int64(n)
		piece = piece[:0]
		return err
	}
	piece = append(piece, l.head...)
	for i, o := range l.items {
		if i > 0 {
			piece = append(piece, l.separator...)
		}
		piece = l.appendItem(piece, o)
		l.items[i] = nil
		if len(piece) >= pieceSize {
			if err := flush(); err != nil {
				return written, err
			}
		}
	}
	piece = append(piece, l.tail...)
	return written, flush()
}

// Text is a JSON list as YAML, or indented: read as a whole, since both are for people.
func (l *List) Text(convert func(document []byte) ([]byte, error)) ([]byte, error) {
	var document bytes.Buffer
	document.Grow(l.size)
	if _, err := l.WriteTo(&document); err != nil {
		return nil, err
	}
	return convert(document.Bytes())
}
