package fanout

import (
	"slices"

	"spillway/internal/cache"
	"spillway/internal/object"
)

// frameCache makes the frames of one log entry after another, each once for all feeds that show the
// same: a type and an encoding determine them, because an event has one version to show as ADDED or
// MODIFIED and one as DELETED. It belongs to the dispatcher.
//
// Frames that are upstream's own bytes do not come here: splicing them where they are to lie costs
// no more than a copy would.
type frameCache struct {
	template *object.Bookmark
	frames   []cachedFrame // of the present entry
	bytes    []byte        // of these frames
}

// cachedFrame is a frame that was made, or the error of making it.
type cachedFrame struct {
	eventType  object.Type // or bookmarkFrame
	encoding   object.Encoding
	start, end int // in the bytes of the cache
	err        error
}

// bookmarkFrame stands among the types for the bookmark at the end of a seam.
const bookmarkFrame object.Type = 0xff

// keptFrameBytes is the largest buffer that is kept for the frames of the next entry.
const keptFrameBytes = 1 << 20

// reset forgets the frames of the entry before.
func (c *frameCache) reset(template *object.Bookmark) {
	c.template = template
	clear(c.frames)
	c.frames = c.frames[:0]
	if cap(c.bytes) > keptFrameBytes {
		c.bytes = nil
	}
	c.bytes = c.bytes[:0]
}

// event is the frame that shows o, valid until reset. An error is ErrUnencodable.
func (c *frameCache) event(e *cache.Entry, enc object.Encoding, t object.Type, o *object.Object) ([]byte, error) {
	enc.Bookmarks = false // it does not change the frame of an event
	return c.frame(t, enc, func(dst []byte) ([]byte, error) { return AppendEvent(dst, enc, t, o, e.RV) })
}

// bookmark is the frame of the bookmark at the end of a seam, valid until reset. An error is
// ErrUnencodable.
func (c *frameCache) bookmark(e *cache.Entry, enc object.Encoding) ([]byte, error) {
	return c.frame(bookmarkFrame, enc, func(dst []byte) ([]byte, error) {
		return AppendBookmark(dst, enc, c.template, e.CompleteRV, false)
	})
}

// frame is the frame of a type and an encoding, which appendFrame makes if it is not there.
func (c *frameCache) frame(
	t object.Type, enc object.Encoding, appendFrame func([]byte) ([]byte, error),
) ([]byte, error) {
	i := slices.IndexFunc(c.frames, func(f cachedFrame) bool { return f.eventType == t && f.encoding == enc })
	if i < 0 {
		i = len(c.frames)
		f := cachedFrame{eventType: t, encoding: enc, start: len(c.bytes)}
		c.bytes, f.err = appendFrame(c.bytes)
		f.end = len(c.bytes)
		c.frames = append(c.frames, f)
	}
	f := &c.frames[i]
	return c.bytes[f.start:f.end], f.err
}
