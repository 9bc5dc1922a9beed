package fanout

import (
	"spillway/internal/cache"
	"spillway/internal/object"
)

// frameCache makes the frames of one log entry after another, each once for all feeds that show the
// same: a type and an encoding determine them, for an event has one version to show as ADDED or
// MODIFIED and one as DELETED. It belongs to the dispatcher.
//
// Frames that are upstream's own bytes do not come here: splicing them where they are to lie costs
// no more than a copy would.
type frameCache struct {
	template *object.Bookmark
	made     []cachedFrame // of the present entry
	bytes    []byte
}

// cachedFrame is a frame that was made, or the error of making it.
type cachedFrame struct {
	what       object.Type // bookmarkFrame, for one
	encoding   object.Encoding
	start, end int
	err        error
}

// bookmarkFrame stands among the types for the bookmark at the end of a seam.
const bookmarkFrame object.Type = 0xff

// keptFrameBytes is the largest buffer that is kept for the frames of the next entry.
const keptFrameBytes = 1 << 20

// next forgets the frames of the entry before.
func (p *frameCache) next(template *object.Bookmark) {
	p.template = template
	clear(p.made)
	p.made = p.made[:0]
	if cap(p.bytes) > keptFrameBytes {
		p.bytes = nil
	}
	p.bytes = p.bytes[:0]
}

// event is the frame that shows o, valid until next. An error is ErrUnencodable.
func (p *frameCache) event(e *cache.Entry, enc object.Encoding, t object.Type, o *object.Object) ([]byte, error) {
	enc.Bookmarks = false // no matter here
	i := p.find(t, enc)
	if i < 0 {
		i = p.keep(t, enc, func(dst []byte) ([]byte, error) { return AppendEvent(dst, enc, t, o, e.RV) })
	}
	return p.frame(i)
}

// bookmark is the frame of the bookmark at the end of a seam, valid until next. An error is
// ErrUnencodable.
func (p *frameCache) bookmark(e *cache.Entry, enc object.Encoding) ([]byte, error) {
	i := p.find(bookmarkFrame, enc)
	if i < 0 {
		i = p.keep(bookmarkFrame, enc, func(dst []byte) ([]byte, error) {
			return AppendBookmark(dst, enc, p.template, e.Through, false)
		})
	}
	return p.frame(i)
}

func (p *frameCache) find(t object.Type, enc object.Encoding) int {
	for i := range p.made {
		if p.made[i].what == t && p.made[i].encoding == enc {
			return i
		}
	}
	return -1
}

func (p *frameCache) keep(t object.Type, enc object.Encoding, frame func([]byte) ([]byte, error)) int {
	start := len(p.bytes)
	out, err := frame(p.bytes)
	p.bytes = out
	p.made = append(p.made, cachedFrame{what: t, encoding: enc, start: start, end: len(out), err: err})
	return len(p.made) - 1
}

func (p *frameCache) frame(i int) ([]byte, error) {
	m := &p.made[i]
	return p.bytes[m.start:m.end], m.err
}
