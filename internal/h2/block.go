package h2

import (
	"errors"
	"fmt"
	"net/http"
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
	headers          http2.HeadersFrame
	fields           []hpack.HeaderField
	fieldBytesLeft   uint32 // bytes of fields that may still come, as RFC 9113, section 6.5.2, counts them
	trailerBytesLeft uint32 // the same of the names of trailers
	regular          bool   // a field that is none of HTTP/2's own has come
	invalid          error
	oversized        bool // larger than any head may be
	refused          bool // there is no room for it

	claim   claim
	encoded int64 // bytes on the wire
	// those of a head that has no end yet; the decoder would keep room for as many until its
	// connection ends
	parts        []byte
	unclaimed    int64 // decoded, and not yet claimed
	decodedBytes int64 // decoded, in all
	emptyFrames  int   // frames without a byte
	clock        *time.Timer
	served       bool // it became a request for the handler, or a trailer
}

// Limits of a head's frames.
const (
	claimStep      = 4 << 10 // bytes that are decoded before they are claimed
	maxEmptyFrames = 16
	// refusedHeadBytesLimit is how many bytes of a head that was refused are kept, so that its
	// connection can go on.
	refusedHeadBytesLimit = 2 * minFrame
)

// methodGet is a field of HPACK's static table, which changes nothing.
var methodGet = []byte{0x82}

// errSlowHead ends a connection on which a head does not come to its end.
var errSlowHead = errors.New("the head of a request took too long to arrive")

// beginHead takes the first frame of a head.
func (c *Conn) beginHead(f *http2.HeadersFrame) error {
	limit := c.opts.headerList()
	b := &block{headers: *f, fieldBytesLeft: limit, trailerBytesLeft: limit}
	c.incoming = b
	c.decoder.SetEmitEnabled(c.fieldsMatter(f.FrameHeader))
	c.decoder.SetMaxStringLength(int(limit))
	c.decoder.SetEmitFunc(func(field hpack.HeaderField) { c.addField(b, field) })
	if c.ledger.bounds != nil && !f.HeadersEnded() {
		b.clock = time.AfterFunc(c.ledger.bounds.Arrival, func() { c.end(errSlowHead) })
	}
	return c.addFragment(f.HeaderBlockFragment(), f.HeadersEnded())
}

// fieldsMatter reports whether the fields of a head matter. After GOAWAY, a head of a connection
// that has proven nothing only updates the state of the compression, which costs little.
func (c *Conn) fieldsMatter(h http2.FrameHeader) bool {
	c.mu.Lock()
	defer c.unlockAndFlush()
	return !c.isUnproven() || !c.isIgnored(h)
}

// continueHead takes one of the frames that follow. The framer has checked that it belongs to the
// head.
func (c *Conn) continueHead(f *http2.ContinuationFrame) error {
	if b := c.incoming; len(f.HeaderBlockFragment()) == 0 && !f.HeadersEnded() {
		if b.emptyFrames++; b.emptyFrames > maxEmptyFrames {
			return c.abandonHead(http2.ErrCodeEnhanceYourCalm)
		}
	}
	return c.addFragment(f.HeaderBlockFragment(), f.HeadersEnded())
}

// abandonHead gives up the head, and with it the connection: the state of its compression is lost.
func (c *Conn) abandonHead(code http2.ErrCode) error {
	c.dropHead()
	c.connLost = true
	return http2.ConnectionError(code)
}

// dropHead releases the head, and closes the connection soon if too many heads were in vain.
func (c *Conn) dropHead() {
	b := c.incoming
	if b == nil {
		return
	}
	if b.clock != nil {
		b.clock.Stop()
	}
	c.incoming = nil
	c.decoder.SetEmitFunc(func(hpack.HeaderField) {})
	if b.parts != nil || b.encoded > keptFrame { // the decoder refers to what it was given last
		_, _ = c.decoder.Write(methodGet)
		_ = c.decoder.Close()
	}
	c.mu.Lock()
	defer c.unlockAndFlush()
	c.ledger.free(&b.claim)
	if c.isUnproven() && !b.served {
		if c.ledger.unservedHeads += b.decodedBytes; c.ledger.unservedHeads > unservedHeads*c.ledger.bounds.Head {
			c.goAwayLocked(http2.ErrCodeNo)
		}
	}
}

// addFragment decodes a part of a head, and acts on the head with its last one.
func (c *Conn) addFragment(part []byte, last bool) error {
	b := c.incoming
	b.encoded += int64(len(part))
	if b.encoded > int64(b.fieldBytesLeft)+int64(b.trailerBytesLeft) {
		return c.abandonHead(http2.ErrCodeProtocol)
	}
	if last && len(b.parts) == 0 {
		c.reserveField(b, int64(len(part)))
	} else {
		part = c.collectFragments(b, part, last)
	}
	switch {
	case !last && b.refused && b.encoded > refusedHeadBytesLimit:
		return c.rejectUnfinished(b)
	case !last:
		return nil
	}
	if _, err := c.decoder.Write(part); err != nil {
		return c.abandonHead(http2.ErrCodeCompression)
	}
	c.reserveField(b, b.unclaimed)
	b.unclaimed = 0
	switch {
	case c.decoder.Close() != nil:
		return c.abandonHead(http2.ErrCodeCompression)
	case b.invalid == nil:
		b.invalid = checkPseudo(b.fields)
	}
	defer c.dropHead()
	if b.invalid != nil {
		return http2.StreamError{StreamID: b.headers.StreamID, Code: http2.ErrCodeProtocol, Cause: b.invalid}
	}
	c.settleClaim(b)
	return c.receiveRequest(b)
}

// collectFragments adds a part of a head to those before, and returns all of them. Of a head that
// was refused there are few.
func (c *Conn) collectFragments(b *block, part []byte, last bool) []byte {
	room := cap(b.parts)
	if need := len(b.parts) + len(part); need > room {
		room = max(need, 2*room)
		if !c.reserveField(b, int64(room-cap(b.parts))) && !last && b.encoded > refusedHeadBytesLimit {
			return b.parts // it is turned away
		}
	}
	if room > cap(b.parts) {
		b.parts = append(make([]byte, 0, room), b.parts...)
	}
	b.parts = append(b.parts, part...)
	return b.parts
}

// addField takes one decoded field.
func (c *Conn) addField(b *block, field hpack.HeaderField) {
	switch {
	case !httpguts.ValidHeaderFieldValue(field.Value):
		b.invalid = fmt.Errorf("invalid value of header field %q", field.Name) // the value may be secret
	case strings.HasPrefix(field.Name, ":"):
		if b.regular {
			b.invalid = errors.New("a pseudo header field after regular ones")
		}
	default:
		b.regular = true
		if !validWireName(field.Name) {
			b.invalid = fmt.Errorf("invalid header field name %q", field.Name)
		}
	}
	left, size := &b.fieldBytesLeft, field.Size()
	if field.Name == "trailer" { // each name in it becomes a field
		names := uint32(strings.Count(field.Value, ",")) +
			1 // #nosec G115 -- bounded by the size of a head
		left, size = &b.trailerBytesLeft, uint32(len(field.Value))-names+1+names*perHeaderField // #nosec G115 -- likewise
		b.unclaimed += int64(names) * fieldCost
	}
	if size > *left {
		b.oversized, b.fieldBytesLeft, b.trailerBytesLeft = true, 0, 0
	} else {
		*left -= size
	}
	cost := fieldCost + int64(len(field.Name)) + int64(len(field.Value))
	b.unclaimed += cost
	if b.unclaimed >= claimStep && b.invalid == nil && !b.oversized {
		c.reserveField(b, b.unclaimed)
		b.unclaimed = 0
	}
	if b.invalid != nil || b.oversized || b.refused {
		c.decoder.SetEmitEnabled(false)
		b.fields = nil
		return
	}
	b.decodedBytes += cost
	b.fields = append(b.fields, field)
}

// reserveField claims n bytes more for a head, unless it has been refused.
func (c *Conn) reserveField(b *block, n int64) bool {
	if c.ledger.bounds == nil || b.refused || b.oversized || n == 0 {
		return !b.refused
	}
	large := b.claim.large
	if !c.claimBytes(&b.claim, n) {
		b.refused = true
		return false
	}
	if b.claim.large && !large && b.clock != nil {
		b.clock.Reset(c.ledger.bounds.Large)
	}
	return true
}

// settleClaim sets the claim of a head to what it occupies from now on: its fields, once more what
// of them is joined, and its stream.
func (c *Conn) settleClaim(b *block) {
	if c.ledger.bounds == nil || b.refused {
		return
	}
	cost := streamCost + b.decodedBytes + joinedBytes(b.fields)
	if more := cost - b.claim.total(); more > 0 {
		c.reserveField(b, more)
		return
	}
	c.mu.Lock()
	defer c.unlockAndFlush()
	c.ledger.shrink(&b.claim, cost)
}

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

// rejectUnfinished refuses a head whose end is still to come, and ends the connection: to follow
// its compression is to hold it.
func (c *Conn) rejectUnfinished(b *block) error {
	b.refused, b.fields = true, nil
	err := c.receiveRequest(b)
	c.dropHead()
	var stream http2.StreamError
	if errors.As(err, &stream) {
		c.refuseStream(stream)
	}
	c.connLost = true
	return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
}

// isSmall reports whether a head that was refused is an ordinary one, which there may be room for
// later.
func (b *block) isSmall(bounds *Bounds) bool {
	return !b.claim.large && b.claim.total()+b.unclaimed <= bounds.Head && b.encoded <= refusedHeadBytesLimit
}

// checkPseudo refuses a head whose pseudo header fields are not those of a request, or not once
// each.
func checkPseudo(fields []hpack.HeaderField) error {
	allowed := []string{":method", ":path", ":scheme", ":authority", ":protocol"}
	for i, f := range fields {
		if !f.IsPseudo() {
			break
		}
		twice := slices.ContainsFunc(fields[:i], func(before hpack.HeaderField) bool { return before.Name == f.Name })
		if twice || !slices.Contains(allowed, f.Name) {
			return fmt.Errorf("a pseudo header field that is unknown or there twice: %q", f.Name)
		}
	}
	return nil
}

// validWireName reports whether a name may be a header field's in HTTP/2, where it is in lower
// case.
func validWireName(name string) bool {
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

// refusalHandler answers a request whose head was not taken.
func (c *Conn) refusalHandler(b *block) http.Handler {
	switch {
	case b.oversized || c.ledger.bounds == nil || c.ledger.bounds.Refuse == nil:
		return http.HandlerFunc(tooLarge)
	default:
		return c.ledger.bounds.Refuse
	}
}
