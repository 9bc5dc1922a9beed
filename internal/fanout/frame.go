package fanout

import (
	"encoding/json"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
)

// Frame is one watch event as it goes on the wire, HTTP chunk included (W-130, W-131). Shared, so never written to. There
// is no type for it: a frame is always a piece of a longer run of bytes.
const (
	eventHead  = `{"type":"`
	eventInner = `","object":`
	eventTail  = "}\n"
	// frameOverhead bounds what a frame adds to an object: chunk header and trailer, the event around it, and a
	// resourceVersion that is longer than the object's own.
	frameOverhead = 96
)

// EventSize is the most bytes that AppendEvent appends.
func EventSize(o *object.Object) int { return o.Size() + frameOverhead }

// AppendEvent appends the frame of an event that shows o, at resourceVersion rv.
func AppendEvent(dst []byte, enc object.Encoding, t object.Type, o *object.Object, rv uint64) []byte {
	if t != object.Deleted {
		return appendFrame(dst, enc, t.String(), o.Size(), func(dst []byte) []byte { return append(dst, o.JSON()...) })
	}
	var buf [20]byte // on the stack, as is the string
	digits := string(strconv.AppendUint(buf[:0], rv, 10))
	size := o.SizeAt(digits)
	return appendFrame(dst, enc, t.String(), size, func(dst []byte) []byte { return o.AppendAt(dst, digits) })
}

func bookmarkSize(b *object.Bookmark) int { return b.MaxSize() + frameOverhead }

// AppendBookmark appends the frame of a bookmark (W-110); end marks the end of the initial events.
func AppendBookmark(dst []byte, enc object.Encoding, b *object.Bookmark, rv uint64, end bool) []byte {
	return appendDocument(dst, enc, "BOOKMARK", b.Append(nil, rv, end))
}

// AppendError appends the frame of an ERROR event, after which nothing may follow but the end (W-107, W-108).
func AppendError(dst []byte, enc object.Encoding, status *metav1.Status) []byte {
	doc, err := json.Marshal(status)
	if err != nil { // a Status always encodes
		return dst
	}
	return appendDocument(dst, enc, "ERROR", doc)
}

// AppendEnd appends the clean end of a stream (W-2).
func AppendEnd(dst []byte, enc object.Encoding) []byte {
	if enc.Chunked {
		dst = append(dst, "0\r\n\r\n"...)
	}
	return dst
}

func appendDocument(dst []byte, enc object.Encoding, typ string, doc []byte) []byte {
	return appendFrame(dst, enc, typ, len(doc), func(dst []byte) []byte { return append(dst, doc...) })
}

// appendFrame appends an event around an object of size bytes, which body appends.
func appendFrame(dst []byte, enc object.Encoding, typ string, size int, body func([]byte) []byte) []byte {
	if enc.Chunked {
		n := len(eventHead) + len(typ) + len(eventInner) + size + len(eventTail)
		dst = strconv.AppendUint(dst, uint64(n), 16)
		dst = append(dst, "\r\n"...)
	}
	dst = append(dst, eventHead...)
	dst = append(dst, typ...)
	dst = append(dst, eventInner...)
	dst = body(dst)
	dst = append(dst, eventTail...)
	if enc.Chunked {
		dst = append(dst, "\r\n"...)
	}
	return dst
}
