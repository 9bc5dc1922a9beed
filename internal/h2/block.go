package h2

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// block is a head, or a trailer, on its way in: a HEADERS frame and what follows it. It is read as
// http2.Framer.ReadMetaHeaders does, with one difference, which is why it is done here: what its
// fields occupy is claimed while they are decoded, and time is short. A few bytes on the wire can
// be a megabyte here.
type block struct {
	headers http2.HeadersFrame
	clock   *time.Timer // nil: the head is one frame
	served  bool        // it became a request for the handler, or a trailer

	// As it came.
	encodedBytes int64
	// parts is what came of a head that has no end yet. The decoder would keep room for as many bytes
	// until its connection ends.
	parts       []byte
	emptyFrames int // frames without a byte

	// As it is decoded.
	fields           []hpack.HeaderField // nil once it is rejected
	fieldBytesLeft   uint32              // bytes of fields that may still come, as RFC 9113, section 6.5.2, counts them
	trailerBytesLeft uint32              // the same of the names of trailers
	decodedBytes     int64               // of fields, in memory
	regular          bool                // a field that is none of HTTP/2's own has come

	claim     claim
	unclaimed int64 // bytes in memory that are decoded, and not yet claimed

	// Why it is rejected.
	invalid   error // nil: the fields so far are valid
	oversized bool  // larger than any head may be
	refused   bool  // there is no room for it
}

// refusedHeadBytesLimit is how many bytes of a head that was refused are kept, so that its
// connection can go on.
const refusedHeadBytesLimit = 2 * minFrame

// newBlock begins a head, of which each limit is in bytes.
func newBlock(f *http2.HeadersFrame, limit uint32) *block {
	return &block{headers: *f, fieldBytesLeft: limit, trailerBytesLeft: limit}
}

func (b *block) isRejected() bool { return b.invalid != nil || b.oversized || b.refused }

// isSmall reports whether a head that was refused is an ordinary one, which there may be room for
// later.
func (b *block) isSmall(bounds *Bounds) bool {
	return !b.claim.large && b.claim.total() <= bounds.Head && b.encodedBytes <= refusedHeadBytesLimit
}

// checkField notes what is invalid in a decoded field.
func (b *block) checkField(field hpack.HeaderField) {
	switch {
	case !httpguts.ValidHeaderFieldValue(field.Value):
		b.invalid = fmt.Errorf("invalid value of header field %q", field.Name) // the value may be secret
	case strings.HasPrefix(field.Name, ":"):
		if b.regular {
			b.invalid = errors.New("a pseudo header field after regular ones")
		}
	default:
		b.regular = true
		if !isWireName(field.Name) {
			b.invalid = fmt.Errorf("invalid header field name %q", field.Name)
		}
	}
}

// countField takes a decoded field off what may still come, and returns how many bytes it occupies.
func (b *block) countField(field hpack.HeaderField) (cost int64) {
	left, size := &b.fieldBytesLeft, field.Size()
	if field.Name == "trailer" { // each name in it becomes a field
		names := 1 + uint32(strings.Count(field.Value, ",")) // #nosec G115 -- bounded by the size of a head
		left = &b.trailerBytesLeft
		size = uint32(len(field.Value)) - names + 1 + names*perHeaderField // #nosec G115 -- likewise
		b.unclaimed += int64(names) * fieldCost
	}
	if size > *left {
		b.oversized = true
	} else {
		*left -= size
	}
	cost = fieldCost + int64(len(field.Name)) + int64(len(field.Value))
	b.unclaimed += cost
	return cost
}

// occupiedBytes is what a head occupies from now on: its fields, once more what of them is joined,
// and its stream.
func (b *block) occupiedBytes() int64 { return streamCost + b.decodedBytes + joinedBytes(b.fields) }

// joinedBytes is how many bytes of fields are held once more: those that are copied to make one of
// several, which are cookies (RFC 9113, section 8.2.3), the way that a request has come, which a
// proxy adds to, and the protocols that it offers; and a path, which is held as it came and
// decoded.
func joinedBytes(fields []hpack.HeaderField) (n int64) {
	for _, f := range fields {
		switch f.Name {
		case "cookie", "x-forwarded-for", "sec-websocket-protocol":
			n += int64(len(f.Value)) + 2
		case ":path":
			path, _, _ := strings.Cut(f.Value, "?")
			n += 2 * int64(len(path))
		}
	}
	return n
}

// checkPseudo refuses a head whose pseudo header fields are not those of a request, or not once
// each.
func checkPseudo(fields []hpack.HeaderField) error {
	allowed := []string{":method", ":path", ":scheme", ":authority", ":protocol"}
	for i, f := range fields {
		if !f.IsPseudo() {
			break
		}
		isRepeated := slices.ContainsFunc(fields[:i], func(other hpack.HeaderField) bool { return other.Name == f.Name })
		if isRepeated || !slices.Contains(allowed, f.Name) {
			return fmt.Errorf("a pseudo header field that is unknown or there twice: %q", f.Name)
		}
	}
	return nil
}

// isWireName reports whether a name may be a header field's in HTTP/2, where it is in lower case.
func isWireName(name string) bool {
	if name == "" {
		return false
	}
	for _, r := range name {
		if !httpguts.IsTokenRune(r) || 'A' <= r && r <= 'Z' {
			return false
		}
	}
	return true
}
