package h2

import (
	"errors"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	claimStepBytes  = 4 << 10 // that are decoded before they are claimed
	emptyFrameLimit = 16      // frames of one head without a byte
)

// methodGet is a field of HPACK's static table, which changes nothing.
var methodGet = []byte{0x82}

// errSlowHead ends a connection on which a head does not come to its end.
var errSlowHead = errors.New("the head of a request took too long to arrive")

// beginHead takes the first frame of a head.
func (c *Conn) beginHead(f *http2.HeadersFrame) error {
	limit := c.opts.headerListBytes()
	b := newBlock(f, limit)
	c.incoming = b
	c.decoder.SetEmitEnabled(c.needsFields(f.FrameHeader))
	c.decoder.SetMaxStringLength(int(limit))
	c.decoder.SetEmitFunc(func(field hpack.HeaderField) { c.addField(b, field) })
	if c.ledger.bounds != nil && !f.HeadersEnded() {
		b.clock = time.AfterFunc(c.ledger.bounds.Arrival, func() { c.end(errSlowHead) })
	}
	return c.addFragment(f.HeaderBlockFragment(), f.HeadersEnded())
}

// needsFields reports whether the fields of a head matter. After GOAWAY, a head of a connection
// that has proven nothing only updates the state of the compression, which costs little.
func (c *Conn) needsFields(h http2.FrameHeader) bool {
	c.mu.Lock()
	defer c.unlockAndFlush()
	return !c.isUnprovenLocked() || !c.isIgnoredLocked(h)
}

// continueHead takes one of the frames that follow. readFrame has checked that it belongs to the
// head.
func (c *Conn) continueHead(f *http2.ContinuationFrame) error {
	if b := c.incoming; len(f.HeaderBlockFragment()) == 0 && !f.HeadersEnded() {
		if b.emptyFrames++; b.emptyFrames > emptyFrameLimit {
			return c.abandonHead(http2.ErrCodeEnhanceYourCalm)
		}
	}
	return c.addFragment(f.HeaderBlockFragment(), f.HeadersEnded())
}

// addFragment takes a part of a head, and acts on the head with its last one.
func (c *Conn) addFragment(part []byte, last bool) error {
	b := c.incoming
	b.encodedBytes += int64(len(part))
	if b.encodedBytes > 2*int64(c.opts.headerListBytes()) { // fields and names of trailers have that much each
		return c.abandonHead(http2.ErrCodeProtocol)
	}
	if last && len(b.parts) == 0 { // it is all of the head, and need not be copied
		c.claimHead(b, int64(len(part)))
		return c.finishHead(b, part)
	}
	c.keepPart(b, part, last)
	switch {
	case last:
		return c.finishHead(b, b.parts)
	case b.refused && b.encodedBytes > refusedHeadBytesLimit:
		return c.rejectUnfinished(b)
	}
	return nil
}

// keepPart adds a part of a head to the earlier ones. Of a head that was refused few are kept.
func (c *Conn) keepPart(b *block, part []byte, last bool) {
	room := cap(b.parts)
	if need := len(b.parts) + len(part); need > room {
		room = max(need, 2*room)
		c.claimHead(b, int64(room-cap(b.parts)))
		if b.refused && !last && b.encodedBytes > refusedHeadBytesLimit {
			return // addFragment rejects it
		}
		b.parts = append(make([]byte, 0, room), b.parts...)
	}
	b.parts = append(b.parts, part...)
}

// finishHead decodes a whole head, and acts on it.
func (c *Conn) finishHead(b *block, encoded []byte) error {
	if _, err := c.decoder.Write(encoded); err != nil {
		return c.abandonHead(http2.ErrCodeCompression)
	}
	c.claimDecoded(b)
	if c.decoder.Close() != nil {
		return c.abandonHead(http2.ErrCodeCompression)
	}
	defer c.dropHead()
	if b.invalid == nil {
		b.invalid = checkPseudo(b.fields)
	}
	if b.invalid != nil {
		return http2.StreamError{StreamID: b.headers.StreamID, Code: http2.ErrCodeProtocol, Cause: b.invalid}
	}
	c.settleClaim(b)
	return c.receiveRequest(b)
}

// addField takes one decoded field.
func (c *Conn) addField(b *block, field hpack.HeaderField) {
	b.checkField(field)
	cost := b.countField(field)
	if b.unclaimed >= claimStepBytes && !b.isRejected() {
		c.claimDecoded(b)
	}
	if b.isRejected() {
		c.decoder.SetEmitEnabled(false)
		b.fields = nil
		return
	}
	b.decodedBytes += cost
	b.fields = append(b.fields, field)
}

// claimDecoded claims what has been decoded of a head.
func (c *Conn) claimDecoded(b *block) {
	c.claimHead(b, b.unclaimed)
	b.unclaimed = 0
}

// claimHead claims n bytes more for a head, which is refused if there is no room for them.
func (c *Conn) claimHead(b *block, n int64) {
	if c.ledger.bounds == nil || b.refused || b.oversized || n == 0 {
		return
	}
	wasLarge := b.claim.large
	if !c.claimBytes(&b.claim, n) {
		b.refused = true
		return
	}
	if b.claim.large && !wasLarge && b.clock != nil {
		b.clock.Reset(c.ledger.bounds.Large)
	}
}

// settleClaim sets the claim of a whole head to what it occupies from now on.
func (c *Conn) settleClaim(b *block) {
	if c.ledger.bounds == nil || b.refused {
		return
	}
	bytes := b.occupiedBytes()
	if more := bytes - b.claim.total(); more > 0 {
		c.claimHead(b, more)
		return
	}
	c.mu.Lock()
	defer c.unlockAndFlush()
	c.ledger.shrink(&b.claim, bytes)
}

// rejectUnfinished refuses a head whose end is still to come, and ends the connection: to follow
// its compression is to hold it.
func (c *Conn) rejectUnfinished(b *block) error {
	b.fields = nil
	err := c.receiveRequest(b)
	c.dropHead()
	var stream http2.StreamError
	if errors.As(err, &stream) {
		c.refuseStream(stream)
	}
	c.headsLost = true
	return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
}

// abandonHead gives up the head, and with it the connection: the state of its compression is lost.
func (c *Conn) abandonHead(code http2.ErrCode) error {
	c.dropHead()
	c.headsLost = true
	return http2.ConnectionError(code)
}

// dropHead releases the head, and closes the connection soon if too many heads came to nothing.
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
	if b.parts != nil || b.encodedBytes > keptFrame { // the decoder refers to the bytes that it decoded last
		_, _ = c.decoder.Write(methodGet)
		_ = c.decoder.Close()
	}
	c.mu.Lock()
	defer c.unlockAndFlush()
	c.ledger.free(&b.claim)
	if c.isUnprovenLocked() && !b.served {
		if c.ledger.unservedHeads += b.decodedBytes; c.ledger.unservedHeads > unservedHeads*c.ledger.bounds.Head {
			c.goAwayLocked(http2.ErrCodeNo)
		}
	}
}
