package codec

import (
	"io"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
)

// List is a list as a document: the items' own bytes, and what stands around them. They are spliced
// while the list is written, and never assembled.
//
// Every item is encoded before anything is written: only then is the size known, and that all items
// can be encoded. The list keeps only bytes then, and lets go of them as they are written.
type List struct {
	enc   object.Encoding
	items []*object.Object // until the list is written or compressed

	head, tail []byte
	parts      [][]byte // of the items, without what is the same in all of them
	around     itemFrame
	size       int
}

// itemFrame is what is the same in all items: an item is prefix, part, suffix.
type itemFrame struct{ prefix, suffix, separator string }

// NewList makes the list of items, which it keeps, in JSON or protobuf, without gzip.
func NewList(enc object.Encoding, r *object.Resource, items []*object.Object, meta metav1.ListMeta) (*List, error) {
	l := &List{enc: enc.Bare(), items: items, around: itemFrameOf(enc)}
	if err := l.encodeItems(); err != nil {
		return nil, err
	}
	switch {
	case enc.Format == object.Protobuf:
		if err := l.frameProtobuf(r, meta); err != nil {
			return nil, err
		}
	case enc.View != object.Whole:
		l.framePartial(r, meta)
	case r.Builtin:
		l.frameBuiltin(r, meta)
	default:
		l.frameCustom(r, meta)
	}
	l.size += len(l.head) + len(l.tail)
	return l, nil
}

func itemFrameOf(enc object.Encoding) itemFrame {
	switch {
	case enc.Format == object.Protobuf:
		_, items := listFields(enc.View)
		return itemFrame{prefix: string(protowire.AppendTag(nil, items, protowire.BytesType))}
	case enc.View != object.Whole:
		return itemFrame{prefix: string(appendPartialHead(nil, enc.View)), suffix: "}", separator: ","}
	}
	return itemFrame{prefix: "{", separator: ","}
}

// encodeItems makes the parts of all items, and adds up their size.
func (l *List) encodeItems() error {
	l.parts = make([][]byte, 0, len(l.items))
	for _, o := range l.items {
		part, err := l.encodeItem(o)
		if err != nil {
			return err
		}
		l.parts = append(l.parts, part)
		l.size += len(part)
	}
	n := len(l.items)
	l.size += n*(len(l.around.prefix)+len(l.around.suffix)) + max(0, n-1)*len(l.around.separator)
	return nil
}

func (l *List) encodeItem(o *object.Object) ([]byte, error) {
	switch {
	case l.enc.Format != object.Protobuf && l.enc.View == object.Whole:
		return o.ItemMembers(), nil
	case l.enc.Format != object.Protobuf:
		return metadataJSON(o)
	}
	encode := wholeItem
	if l.enc.View != object.Whole {
		encode = metadataItem
	}
	field, err := encode(o)
	if err != nil {
		return nil, err
	}
	return field[1:], nil // the tag is one byte, and in the prefix
}

// frameBuiltin makes head and tail in the order of Go's fields (W-60).
func (l *List) frameBuiltin(r *object.Resource, meta metav1.ListMeta) {
	l.head = appendListHead(nil, listTypeOf(r, l.enc.View), meta)
	l.head = append(l.head, '[')
	l.tail = []byte("]}\n")
}

// framePartial is frameBuiltin for PartialObjectMetadata: without items there is a null (W-45).
func (l *List) framePartial(r *object.Resource, meta metav1.ListMeta) {
	l.frameBuiltin(r, meta)
	if len(l.items) == 0 {
		l.head = append(l.head[:len(l.head)-1], "null"...)
		l.tail = []byte("}\n")
	}
}

// frameCustom makes head and tail with their keys sorted, and with a continue member even if it is
// empty (W-60).
func (l *List) frameCustom(r *object.Resource, meta metav1.ListMeta) {
	t := listTypeOf(r, l.enc.View)
	l.head = append(l.head, `{"apiVersion":"`+t.APIVersion+`","items":[`...)
	l.tail = append(l.tail, `],"kind":"`+t.Kind+`","metadata":{"continue":"`+meta.Continue+`"`...)
	l.tail = appendRemaining(l.tail, meta)
	l.tail = append(l.tail, `,"resourceVersion":"`+meta.ResourceVersion+"\"}}\n"...)
}

// appendListHead appends everything up to the value of items. Neither tokens nor resourceVersions
// need an escape.
func appendListHead(dst []byte, t metav1.TypeMeta, meta metav1.ListMeta) []byte {
	dst = append(dst, `{"kind":"`+t.Kind+`","apiVersion":"`+t.APIVersion+`","metadata":{"resourceVersion":"`+
		meta.ResourceVersion+`"`...)
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

// listFields are the fields that hold a list's metadata and its items. In v1beta1's
// PartialObjectMetadataList they stand the other way around.
func listFields(v object.View) (metadata, items protowire.Number) {
	if v == object.MetadataV1beta1 {
		return fieldItems, 1
	}
	return 1, fieldItems
}

// frameProtobuf makes head and tail of W-133. The head holds the size of all that follows it.
func (l *List) frameProtobuf(r *object.Resource, meta metav1.ListMeta) error {
	msg, err := meta.Marshal()
	if err != nil {
		return err
	}
	field, items := listFields(l.enc.View)
	own := protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), msg)
	l.head = appendDocumentHead(nil, listTypeOf(r, l.enc.View), l.size+len(own))
	if items < field {
		l.tail = own
	} else {
		l.head = append(l.head, own...)
	}
	l.tail = append(l.tail, documentTail...)
	return nil
}

// Size is the number of bytes of the document.
func (l *List) Size() int { return l.size }

// WriteTo writes the list in pieces, and lets go of it. It can be called once.
func (l *List) WriteTo(w io.Writer) (int64, error) {
	out := newPieces(w, l.size)
	defer out.close()
	l.items = nil
	out.write(l.head)
	for i, part := range l.parts {
		if i > 0 {
			out.writeString(l.around.separator)
		}
		out.writeString(l.around.prefix)
		out.write(part)
		out.writeString(l.around.suffix)
		l.parts[i] = nil
		if out.err != nil {
			break
		}
	}
	out.write(l.tail)
	return out.finish()
}

// pieceBytes is how much of a list is written at once (design D10a).
const pieceBytes = 256 << 10

// pieces gathers what is written into pieces of exactly pieceBytes, all but the last. After an
// error it writes nothing more.
type pieces struct {
	w       io.Writer
	buf     *[]byte // room for one piece
	written int64
	err     error
}

var pieceBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, pieceBytes)
	return &b
}}

// newPieces makes the pieces of a document of size bytes. Close them.
func newPieces(w io.Writer, size int) *pieces {
	if size < pieceBytes/4 {
		b := make([]byte, 0, size)
		return &pieces{w: w, buf: &b}
	}
	return &pieces{w: w, buf: pieceBuffers.Get().(*[]byte)}
}

func (p *pieces) write(b []byte) {
	for len(b) > 0 && p.err == nil {
		buf := *p.buf
		n := min(len(b), pieceBytes-len(buf))
		*p.buf = append(buf, b[:n]...)
		b = b[n:]
		if len(*p.buf) == pieceBytes {
			p.flush()
		}
	}
}

func (p *pieces) writeString(s string) {
	if buf := *p.buf; len(s) < pieceBytes-len(buf) && p.err == nil {
		*p.buf = append(buf, s...)
		return
	}
	p.write([]byte(s))
}

func (p *pieces) flush() {
	n, err := p.w.Write(*p.buf)
	p.written, p.err = p.written+int64(n), err
	*p.buf = (*p.buf)[:0]
}

// finish writes the last piece, and returns how much was written in all, or why not.
func (p *pieces) finish() (int64, error) {
	if p.err == nil && len(*p.buf) > 0 {
		p.flush()
	}
	return p.written, p.err
}

// close gives the buffer back.
func (p *pieces) close() {
	if cap(*p.buf) >= pieceBytes {
		*p.buf = (*p.buf)[:0]
		pieceBuffers.Put(p.buf)
	}
}
