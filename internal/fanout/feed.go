package fanout

import (
	"slices"
	"sort"
	"sync/atomic"

	"spillway/internal/cache"
	"spillway/internal/object"
	"spillway/internal/ring"
)

// Feed is what one selector and encoding see of the log, as frames ready to send. Its streams share
// it.
//
// Frames lie contiguous in segments, so that whatever piled up for a client is one send. A segment
// is filled, published, never written again and left to the garbage collector: nothing is recycled
// while a reader may hold it. How many are kept is bounded; a cursor that falls off goes on from
// the log, which the feed is a copy of.
type Feed struct {
	// Static after construction.
	key      feedKey
	selector object.Selector
	encoding object.Encoding
	owner    Owner // that it was made for
	cost     int   // that the owner is charged
	inLane   bool  // a lane dispatches it

	// Written by the dispatcher, read by cursors.
	segments atomic.Pointer[segmentList]
	changed  ring.Signal

	// The dispatcher's.
	tail    *segment // nil: nothing was shown since the feed started
	touched bool     // since the last wake
	size    int64    // bytes of the segments that are kept
	entry   indexEntry

	// Written under Hub.mu, read by the dispatcher.
	holders atomic.Int32
}

type feedKey struct {
	selector string
	encoding object.Encoding
}

// segmentList is the segments that are kept, the first of which has or will have number first.
// Immutable: it is replaced as a whole, so that the feed holds no segment longer than it says. (A
// ring.Ring would: it lets go of its items by the chunk.)
//
// A feed has no segment before its first frame, since most feeds never see one: with thousands of
// selectors, what each costs while nothing happens to it is what the proxy needs.
type segmentList struct {
	first    uint64
	start    uint64 // log position: the feed's frames from it on are here, until they are in segments
	segments []*segment
}

// segment is a stretch of frames. Everything below the published mark is immutable.
type segment struct {
	// Static after construction.
	start     uint64     // log position: the feed's frames from it on are in this segment or later ones
	data      []byte     // as long as its capacity
	frameEnds []frameEnd // likewise

	published atomic.Int32 // marks that cursors may read

	// The dispatcher's.
	used, count int
}

// frameEnd is where a frame ends.
type frameEnd struct {
	end        int    // in buf
	next       uint64 // the log position after the frame's event
	completeRV uint64
	inSeam     bool // the frame's event lies inside a seam
}

const (
	minSegmentBytes       = 2 << 10   // of a feed's first segment; the next is twice as large, up to the largest
	maxSegmentBytes       = 256 << 10 // of a feed of many; a larger frame has a segment of its own
	segmentBytesPerStream = 32 << 10  // how much larger each stream makes a feed's largest segment
	maxFrameEnds          = 512
	segmentsLimit         = 4 // at least; while they are small, as many more as are no more bytes
)

func newFeed(key feedKey, sel object.Selector, enc object.Encoding) *Feed {
	return &Feed{key: key, selector: sel, encoding: enc}
}

// activate starts the feed at a log position, once: cursors that begin below come from the log.
func (f *Feed) activate(position uint64) {
	f.segments.Store(&segmentList{start: position})
}

// restart forgets every frame and starts anew at a log position. The next segment has a number that
// no cursor is in or waits for.
func (f *Feed) restart(position uint64) {
	old := f.segments.Load()
	f.segments.Store(&segmentList{first: old.first + uint64(len(old.segments)) + 1, start: position})
	f.tail, f.size = nil, 0
	f.touched = true
}

// openSegment appends an empty segment to the last few of the feed.
func (f *Feed) openSegment(position uint64, size int) {
	f.tail = &segment{start: position, data: make([]byte, size), frameEnds: make([]frameEnd, max(1, min(maxFrameEnds,
		size/64)))}
	old := f.segments.Load()
	keep := f.retainSegments(old.segments, segmentsLimit*f.maxSegmentSize()-size)
	dropped := old.segments[:len(old.segments)-len(keep)]
	f.size += int64(size)
	for _, s := range dropped {
		f.size -= int64(len(s.data))
	}
	first := old.first + uint64(len(dropped))
	f.segments.Store(&segmentList{first: first, start: old.start, segments: append(slices.Clip(keep), f.tail)})
}

// retainSegments are the last segments: segmentsLimit, and more if they fit into room, in bytes.
func (*Feed) retainSegments(segments []*segment, room int) []*segment {
	for i := len(segments) - 1; i >= 0; i-- {
		if room -= len(segments[i].data); room < 0 && i <= len(segments)-segmentsLimit {
			return segments[i+1:]
		}
	}
	return segments
}

// maxSegmentSize is the size of the feed's segments once it has shown much. What piles up for a
// stream while the others have their turns is one send if it lies in one segment; thousands of
// feeds of one stream each must not keep as much as one of thousands.
//
// In a lane there are as many as its owner likes, so those of one stream are smaller still.
func (f *Feed) maxSegmentSize() int {
	each := segmentBytesPerStream
	if f.inLane {
		each /= 8
	}
	return min(maxSegmentBytes, each*int(f.holders.Load()))
}

// add appends the frame of a log entry, if the selector sees it, and reports whether it did. next
// is the log position after the entry. Frames whose size is not known beforehand come from the
// frameCache.
//
// A frame that cannot be made leaves the feed to start over behind it: its cursors go on from the
// log, and fail there in their turn.
func (f *Feed) add(e *cache.Entry, next uint64, p *frameCache) (added bool) {
	t, o, seen := f.selector.EventFor(&e.Event)
	var frame []byte
	var err error
	switch {
	case seen && isDirect(f.encoding):
		s := f.reserve(EventSize(o))
		f.addFrameEnd(e, next, len(appendDirect(s.data[:s.used], f.encoding, t, o, e.RV)))
		return true
	case seen:
		frame, err = p.event(e, f.encoding, t, o)
	case e.Seam == cache.SeamEnd && f.encoding.Bookmarks:
		frame, err = p.bookmark(e, f.encoding)
	default:
		return false
	}
	if err != nil {
		f.restart(next)
		return false
	}
	s := f.reserve(len(frame))
	f.addFrameEnd(e, next, s.used+copy(s.data[s.used:], frame))
	return true
}

// addFrameEnd ends a frame that has been written to the last segment.
func (f *Feed) addFrameEnd(e *cache.Entry, next uint64, end int) {
	s := f.tail
	s.used = end
	s.frameEnds[s.count] = frameEnd{end: end, next: next, completeRV: e.CompleteRV, inSeam: e.Seam.IsOpen()}
	s.count++
	f.touched = true
}

// reserve returns a segment with room for a frame of at most need bytes: the last one, or a new
// one.
func (f *Feed) reserve(need int) *segment {
	s := f.tail
	if s == nil {
		f.openSegment(f.segments.Load().start, max(minSegmentBytes, need))
		return f.tail
	}
	if s.count < len(s.frameEnds) && s.used+need <= len(s.data) {
		return s
	}
	f.publish()
	position := s.start
	if s.count > 0 {
		position = s.frameEnds[s.count-1].next
	}
	f.openSegment(position, max(min(2*len(s.data), f.maxSegmentSize()), minSegmentBytes, need))
	return f.tail
}

// publish shows the frames added so far to cursors.
func (f *Feed) publish() {
	if f.tail != nil {
		f.tail.published.Store(int32(f.tail.count)) // #nosec G115 -- a segment holds few frames
	}
}

// wake wakes the feed's streams, if there is anything for them.
func (f *Feed) wake() {
	if f.touched {
		f.touched = false
		f.changed.Wake()
	}
}

// feedPosition is a position in a feed: a segment and the number of its marks that were taken.
type feedPosition struct {
	segment uint64
	taken   int
}

// locate finds the feedPosition of a log position, or false if the feed does not reach back to it.
func (f *Feed) locate(position uint64) (feedPosition, bool) {
	kept := f.segments.Load()
	switch {
	case kept == nil:
		return feedPosition{}, false
	case len(kept.segments) == 0:
		return feedPosition{segment: kept.first}, kept.start <= position
	}
	for i := len(kept.segments) - 1; i >= 0; i-- {
		s := kept.segments[i]
		if s.start > position {
			continue
		}
		marks := s.visibleEnds()
		taken := sort.Search(len(marks), func(i int) bool { return marks[i].next > position })
		return feedPosition{segment: kept.first + uint64(i), taken: taken}, true
	}
	return feedPosition{}, false
}

// visibleEnds are the segment's published marks.
func (s *segment) visibleEnds() []frameEnd {
	return s.frameEnds[:s.published.Load()]
}

// read returns the frames at p that lie above a log position, the last of their marks, and the
// feedPosition after them. No frames mean that p is at the end. It returns false if the feed has
// moved past p.
func (f *Feed) read(p feedPosition, position uint64) (frames []byte, last frameEnd, next feedPosition, ok bool) {
	// The segments must be known before their marks are read: a segment is complete once it has a
	// successor.
	kept := f.segments.Load()
	if p.segment < kept.first {
		return nil, frameEnd{}, p, false
	}
	next = p
	for _, s := range kept.segments[p.segment-kept.first:] {
		marks := s.visibleEnds()
		for p.taken < len(marks) && marks[p.taken].next <= position {
			p.taken++
		}
		if p.taken < len(marks) {
			start := 0
			if p.taken > 0 {
				start = marks[p.taken-1].end
			}
			last = marks[len(marks)-1]
			return s.data[start:last.end:last.end], last, feedPosition{segment: p.segment, taken: len(marks)}, true
		}
		next, p = p, feedPosition{segment: p.segment + 1}
	}
	return nil, frameEnd{}, next, true
}
