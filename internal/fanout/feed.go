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
	tail      *segment // nil: nothing was shown since the feed started
	mustWake  bool     // its streams: it has changed since they were woken
	keptBytes int64    // of its segments
	entry     indexEntry

	// Written under Hub.mu, read by the dispatcher.
	holders atomic.Int32
}

type feedKey struct {
	selector string
	encoding object.Encoding
}

func feedKeyOf(sel object.Selector, enc object.Encoding) feedKey {
	return feedKey{selector: sel.Key(), encoding: enc}
}

// segmentList is the segments that are kept, of which the first has, or will have, number first.
// Immutable: it is replaced as a whole, so that the feed holds exactly these segments. (A ring.Ring
// would hold more, because it drops its items by the chunk.)
//
// A feed has no segment before its first frame, because most feeds never see one. With thousands of
// selectors, most of the memory of feeds is what an idle one costs.
type segmentList struct {
	first    uint64
	start    uint64 // log position: the feed's frames from it on are here, until they are in segments
	segments []*segment
}

// segment is a stretch of frames. Those that are published are immutable.
type segment struct {
	// Static after construction.
	start     uint64     // log position: the feed's frames from it on are in this segment or later ones
	data      []byte     // as long as its capacity
	frameEnds []frameEnd // likewise

	published atomic.Int32 // frames that cursors may read

	// The dispatcher's.
	usedBytes int // of data
	frames    int
}

// frameEnd is where a frame ends.
type frameEnd struct {
	end        int    // in the segment's data
	next       uint64 // the log position after the frame's event
	completeRV uint64
	inSeam     bool // the frame's event lies inside a seam
}

const (
	minSegmentBytes       = 2 << 10   // of a feed's first segment; the next is twice as large, up to the largest
	maxSegmentBytes       = 256 << 10 // of a feed of many; a larger frame has a segment of its own
	segmentBytesPerStream = 32 << 10  // how much larger each stream makes a feed's largest segment
	maxSegmentFrames      = 512
	minFrameBytes         = 64 // a segment has a frameEnd for so many bytes
	minSegments           = 4  // that are kept; while they are small, as many more as are no more bytes
)

func newFeed(key feedKey, sel object.Selector) *Feed {
	return &Feed{key: key, selector: sel, encoding: key.encoding}
}

// activate starts the feed at a log position, once: cursors that begin below come from the log.
func (f *Feed) activate(position uint64) {
	f.segments.Store(&segmentList{start: position})
}

// restart forgets every frame and starts again at a log position. The next segment has a number
// that no cursor is in or waits for.
func (f *Feed) restart(position uint64) {
	old := f.segments.Load()
	f.segments.Store(&segmentList{first: old.first + uint64(len(old.segments)) + 1, start: position})
	f.tail, f.keptBytes = nil, 0
	f.mustWake = true
}

// openSegment appends an empty segment to the last few of the feed.
func (f *Feed) openSegment(position uint64, size int) {
	frames := max(1, min(maxSegmentFrames, size/minFrameBytes))
	f.tail = &segment{start: position, data: make([]byte, size), frameEnds: make([]frameEnd, frames)}
	old := f.segments.Load()
	keep := retainSegments(old.segments, minSegments*f.maxSegmentSize()-size)
	dropped := old.segments[:len(old.segments)-len(keep)]
	f.keptBytes += int64(size)
	for _, s := range dropped {
		f.keptBytes -= int64(len(s.data))
	}
	first := old.first + uint64(len(dropped))
	f.segments.Store(&segmentList{first: first, start: old.start, segments: append(slices.Clip(keep), f.tail)})
}

// retainSegments are the last segments: minSegments, and more if they fit into so many bytes.
func retainSegments(segments []*segment, room int) []*segment {
	for i := len(segments) - 1; i >= 0; i-- {
		if room -= len(segments[i].data); room < 0 && i <= len(segments)-minSegments {
			return segments[i+1:]
		}
	}
	return segments
}

// maxSegmentSize is the size of the feed's segments once it has shown much. What piles up for a
// stream while the others have their turns is one send if it lies in one segment. Thousands of
// feeds of one stream each must not keep as much as one of thousands.
//
// In a lane there are as many feeds as its owner likes, so the segments of few streams are smaller.
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
// If a frame cannot be made, the feed starts over behind it. Its cursors read the log instead, and
// fail there when they come to the entry.
func (f *Feed) add(e *cache.Entry, next uint64, frames *frameCache) (added bool) {
	t, o, seen := f.selector.EventFor(&e.Event)
	var frame []byte
	var err error
	switch {
	case seen && isDirect(f.encoding):
		s := f.reserve(EventSize(o))
		f.addFrameEnd(e, next, len(appendDirect(s.data[:s.usedBytes], f.encoding, t, o, e.RV)))
		return true
	case seen:
		frame, err = frames.event(e, f.encoding, t, o)
	case e.Seam == cache.SeamEnd && f.encoding.Bookmarks:
		frame, err = frames.bookmark(e, f.encoding)
	default:
		return false
	}
	if err != nil {
		f.restart(next)
		return false
	}
	s := f.reserve(len(frame))
	f.addFrameEnd(e, next, s.usedBytes+copy(s.data[s.usedBytes:], frame))
	return true
}

// addFrameEnd ends a frame that has been written to the last segment.
func (f *Feed) addFrameEnd(e *cache.Entry, next uint64, end int) {
	s := f.tail
	s.usedBytes = end
	s.frameEnds[s.frames] = frameEnd{end: end, next: next, completeRV: e.CompleteRV, inSeam: e.Seam.IsOpen()}
	s.frames++
	f.mustWake = true
}

// reserve returns a segment with room for a frame of at most need bytes: the last one, or a new
// one.
func (f *Feed) reserve(need int) *segment {
	s := f.tail
	if s == nil {
		f.openSegment(f.segments.Load().start, max(minSegmentBytes, need))
		return f.tail
	}
	if s.frames < len(s.frameEnds) && s.usedBytes+need <= len(s.data) {
		return s
	}
	f.publish()
	position := s.start
	if s.frames > 0 {
		position = s.frameEnds[s.frames-1].next
	}
	f.openSegment(position, max(min(2*len(s.data), f.maxSegmentSize()), minSegmentBytes, need))
	return f.tail
}

// publish shows the frames added so far to cursors.
func (f *Feed) publish() {
	if f.tail != nil {
		f.tail.published.Store(int32(f.tail.frames)) // #nosec G115 -- a segment holds few frames
	}
}

// wake wakes the feed's streams, if there is anything for them.
func (f *Feed) wake() {
	if f.mustWake {
		f.mustWake = false
		f.changed.Wake()
	}
}

// feedPosition is a position in a feed: a segment and the number of its frames that were taken.
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
		ends := s.publishedEnds()
		taken := sort.Search(len(ends), func(i int) bool { return ends[i].next > position })
		return feedPosition{segment: kept.first + uint64(i), taken: taken}, true
	}
	return feedPosition{}, false
}

// publishedEnds are the ends of the frames that cursors may read.
func (s *segment) publishedEnds() []frameEnd {
	return s.frameEnds[:s.published.Load()]
}

// read returns the frames at p that lie above a log position, the last one's end, and the
// feedPosition after them. No frames mean that p is at the end. It returns false if the feed has
// moved past p.
func (f *Feed) read(p feedPosition, position uint64) (frames []byte, last frameEnd, next feedPosition, ok bool) {
	// The segments are loaded before their ends: a segment that has a successor is complete.
	kept := f.segments.Load()
	if p.segment < kept.first {
		return nil, frameEnd{}, p, false
	}
	next = p
	for _, s := range kept.segments[p.segment-kept.first:] {
		ends := s.publishedEnds()
		for p.taken < len(ends) && ends[p.taken].next <= position {
			p.taken++
		}
		if p.taken < len(ends) {
			start := 0
			if p.taken > 0 {
				start = ends[p.taken-1].end
			}
			last = ends[len(ends)-1]
			return s.data[start:last.end:last.end], last, feedPosition{segment: p.segment, taken: len(ends)}, true
		}
		next, p = p, feedPosition{segment: p.segment + 1}
	}
	return nil, frameEnd{}, next, true
}
