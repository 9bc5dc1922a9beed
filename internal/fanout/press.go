package fanout

import (
	"spillway/internal/cache"
	"spillway/internal/object"
)

// press makes the frames of one log entry after another, each once for all feeds that show the
// same: a type and an encoding determine them, for an event has one version to show as ADDED or
// MODIFIED and one as DELETED. It belongs to the dispatcher.
//
// Frames that are upstream's own bytes do not come here: splicing them where they are to lie costs
// no more than a copy would.
type press struct {
	template *object.Bookmark
	made     []impression
	bytes    []byte
}

// impression is a frame that was made, or why it could not be.
type impression struct {
	what       object.Type // bookmarkFrame, for one
	encoding   object.Encoding
	start, end int
	err        error
}

// bookmarkFrame stands among the types for the bookmark at the end of a seam.
const bookmarkFrame object.Type = 0xff

// keptPress is how much memory is kept for the frames of the next entry.
const keptPress = 1 << 20

// next forgets the frames of the entry before.
func (p *press) next(template *object.Bookmark) {
	p.template = template
	clear(p.made)
	p.made = p.made[:0]
	if cap(p.bytes) > keptPress {
		p.bytes = nil
	}
	p.bytes = p.bytes[:0]
}

// event is the frame that shows o, valid until next. An error is ErrUnencodable.
func (p *press) event(e *cache.Entry, enc object.Encoding, t object.Type, o *object.Object) ([]byte, error) {
	enc.Bookmarks = false // no matter here
	i := p.find(t, enc)
	if i < 0 {
		i = p.keep(t, enc, func(dst []byte) ([]byte, error) { return AppendEvent(dst, enc, t, o, e.RV) })
	}
	return p.frame(i)
}

// bookmark is the frame of the bookmark at the end of a seam, valid until next. An error is
// ErrUnencodable.
func (p *press) bookmark(e *cache.Entry, enc object.Encoding) ([]byte, error) {
	i := p.find(bookmarkFrame, enc)
	if i < 0 {
		i = p.keep(bookmarkFrame, enc, func(dst []byte) ([]byte, error) {
			return AppendBookmark(dst, enc, p.template, e.Through, false)
		})
	}
	return p.frame(i)
}

func (p *press) find(t object.Type, enc object.Encoding) int {
	for i := range p.made {
		if p.made[i].what == t && p.made[i].encoding == enc {
			return i
		}
	}
	return -1
}

func (p *press) keep(t object.Type, enc object.Encoding, frame func([]byte) ([]byte, error)) int {
	start := len(p.bytes)
	out, err := frame(p.bytes)
	p.bytes = out
	p.made = append(p.made, impression{what: t, encoding: enc, start: start, end: len(out), err: err})
	return len(p.made) - 1
}

func (p *press) frame(i int) ([]byte, error) {
	m := &p.made[i]
	return p.bytes[m.start:m.end], m.err
}
