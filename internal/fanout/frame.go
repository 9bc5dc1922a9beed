package fanout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/codec"
	"spillway/internal/object"
	"spillway/internal/websocket"
)

// A frame is one watch event as it goes on the wire, HTTP chunk or WebSocket frame included (W-130
// to W-132, W-120). It is shared, so never written to. There is no type for it: a frame is always a
// piece of a longer run of bytes.
const (
	eventHead  = `{"type":"`
	eventInner = `","object":`
	eventTail  = "}\n"
	// frameOverhead bounds what a frame adds to an object: chunk header and trailer, the event
	// around it, and a resourceVersion that is longer than the object's own.
	frameOverhead = 96
)

// ErrUnencodable says that an event could not be made in a client's encoding. It is never left out:
// the stream ends before it, and the client's next request has to pass through.
var ErrUnencodable = errors.New("an event cannot be encoded")

// isDirect reports that frames hold the very bytes that upstream sent, so that their size is known
// before they are made.
func isDirect(enc object.Encoding) bool {
	return enc.Format == object.JSON && enc.View == object.Whole && !enc.Gzip
}

// EventSize is the most bytes that AppendEvent appends of o as upstream sent it; in other encodings
// it is an estimate.
func EventSize(o *object.Object) int { return o.Size() + frameOverhead }

// AppendEvent appends the frame of an event that shows o, at resourceVersion rv. An error is
// ErrUnencodable, and dst is as it was.
func AppendEvent(dst []byte, enc object.Encoding, t object.Type, o *object.Object, rv uint64) ([]byte, error) {
	if enc.Gzip {
		frame, err := AppendEvent(nil, enc.Bare(), t, o, rv)
		return appendSealed(dst, enc, frame, err)
	}
	if isDirect(enc) {
		return appendDirect(dst, enc, t, o, rv), nil
	}
	if t != object.Deleted {
		rv = o.RV
	}
	doc, err := codec.Append(nil, enc, o, rv)
	if err != nil {
		return dst, fmt.Errorf("%w: %w", ErrUnencodable, err)
	}
	return appendDocument(dst, enc, t.String(), doc)
}

// appendDirect splices a frame from the object's own bytes.
func appendDirect(dst []byte, enc object.Encoding, t object.Type, o *object.Object, rv uint64) []byte {
	if t != object.Deleted {
		return appendJSON(dst, enc, t.String(), o.Size(), func(dst []byte) []byte { return append(dst, o.JSON()...) })
	}
	var buf [20]byte // on the stack, as is the string
	digits := string(strconv.AppendUint(buf[:0], rv, 10))
	return appendJSON(dst, enc, t.String(), o.SizeAt(digits), func(dst []byte) []byte { return o.AppendAt(dst, digits) })
}

// AppendBookmark appends the frame of a bookmark (W-110); end marks the end of the initial events.
// An error is ErrUnencodable.
func AppendBookmark(dst []byte, enc object.Encoding, b *object.Bookmark, rv uint64, end bool) ([]byte, error) {
	if enc.Gzip {
		frame, err := AppendBookmark(nil, enc.Bare(), b, rv, end)
		return appendSealed(dst, enc, frame, err)
	}
	doc, err := codec.AppendBookmark(nil, enc, b, rv, end)
	if err != nil {
		return dst, fmt.Errorf("%w: %w", ErrUnencodable, err)
	}
	return appendDocument(dst, enc, "BOOKMARK", doc)
}

// AppendError appends the frame of an ERROR event, after which nothing may follow but the end
// (W-107, W-108).
func AppendError(dst []byte, enc object.Encoding, status *metav1.Status) ([]byte, error) {
	if enc.Gzip {
		frame, err := AppendError(nil, enc.Bare(), status)
		return appendSealed(dst, enc, frame, err)
	}
	doc, err := codec.Status(enc.Format, status)
	if err != nil {
		return dst, fmt.Errorf("%w: %w", ErrUnencodable, err)
	}
	return appendDocument(dst, enc, "ERROR", doc)
}

// AppendState appends a run of objects as ADDED frames. Gzipped, they are one member, which is made
// once for all clients that are shown the same run (design D8). An error is ErrUnencodable.
func AppendState(dst []byte, enc object.Encoding, run []*object.Object) ([]byte, error) {
	if !enc.Gzip {
		return appendAdded(dst, enc, run)
	}
	member, err := codec.Member(enc, run, func() ([]byte, error) { return appendAdded(nil, enc.Bare(), run) })
	if err != nil {
		return dst, err
	}
	return appendMember(dst, enc, member), nil
}

func appendAdded(dst []byte, enc object.Encoding, run []*object.Object) (_ []byte, err error) {
	for _, o := range run {
		if dst, err = AppendEvent(dst, enc, object.Added, o, o.RV); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func appendSealed(dst []byte, enc object.Encoding, frame []byte, err error) ([]byte, error) {
	if err != nil {
		return dst, err
	}
	return appendMember(dst, enc, codec.AppendMember(nil, frame)), nil
}

// appendMember appends a gzip member as a piece of a stream of members (W-7, W-131).
func appendMember(dst []byte, enc object.Encoding, member []byte) []byte {
	dst = appendChunkHead(dst, enc, len(member))
	dst = append(dst, member...)
	return appendChunkTail(dst, enc)
}

// AppendNoEvents appends what a gzip stream without events contains: an empty member. A body of no
// bytes is no gzip stream, and decoders fail on it.
func AppendNoEvents(dst []byte, enc object.Encoding) []byte {
	return appendMember(dst, enc, codec.AppendMember(nil, nil))
}

// AppendEnd appends the clean end of a stream (W-2, W-120).
func AppendEnd(dst []byte, enc object.Encoding) []byte {
	switch {
	case enc.Chunked:
		dst = append(dst, "0\r\n\r\n"...)
	case enc.WebSocket:
		dst = append(dst, websocket.CloseNormal...)
	}
	return dst
}

// appendDocument appends an event around a document.
func appendDocument(dst []byte, enc object.Encoding, typ string, doc []byte) ([]byte, error) {
	if enc.Format == object.Protobuf {
		return appendProtobuf(dst, enc, typ, doc)
	}
	return appendJSON(dst, enc, typ, len(doc), func(dst []byte) []byte { return append(dst, doc...) }), nil
}

// appendJSON appends an event around an object of size bytes, which body appends.
func appendJSON(dst []byte, enc object.Encoding, typ string, size int, body func([]byte) []byte) []byte {
	whole := len(eventHead) + len(typ) + len(eventInner) + size + len(eventTail)
	if enc.WebSocket {
		dst = websocket.AppendHead(dst, websocket.Text, whole)
	} else {
		dst = appendChunkHead(dst, enc, whole)
	}
	dst = append(dst, eventHead...)
	dst = append(dst, typ...)
	dst = append(dst, eventInner...)
	dst = body(dst)
	dst = append(dst, eventTail...)
	return appendChunkTail(dst, enc)
}

// appendProtobuf appends a length and a bare WatchEvent, whose object is a RawExtension around a
// document (W-132). In a WebSocket the frame has the length (W-120).
func appendProtobuf(dst []byte, enc object.Encoding, typ string, doc []byte) ([]byte, error) {
	raw := protowire.SizeTag(1) + protowire.SizeBytes(len(doc))
	size := protowire.SizeTag(1) + protowire.SizeBytes(len(typ)) + protowire.SizeTag(2) + protowire.SizeBytes(raw)
	if int64(size) > math.MaxUint32 {
		return dst, fmt.Errorf("%w: its frame would have %d bytes", ErrUnencodable, size)
	}
	if enc.WebSocket {
		dst = websocket.AppendHead(dst, websocket.Binary, size)
	} else {
		dst = appendChunkHead(dst, enc, 4+size)
		dst = binary.BigEndian.AppendUint32(dst, uint32(size)) // #nosec G115 -- checked above
	}
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendString(dst, typ)
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(raw)) // #nosec G115 -- a size is not negative
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendBytes(dst, doc)
	return appendChunkTail(dst, enc), nil
}

func appendChunkHead(dst []byte, enc object.Encoding, size int) []byte {
	if !enc.Chunked {
		return dst
	}
	dst = strconv.AppendUint(dst, uint64(size), 16) // #nosec G115 -- a size is not negative
	return append(dst, "\r\n"...)
}

func appendChunkTail(dst []byte, enc object.Encoding) []byte {
	if enc.Chunked {
		dst = append(dst, "\r\n"...)
	}
	return dst
}
