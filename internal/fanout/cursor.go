package fanout

import (
	"spillway/internal/cache"
	"spillway/internal/object"
	"spillway/internal/ring"
)

// Cursor is one client's place in the log. Next returns the frames that follow; when there are
// none, CompleteRV is a resourceVersion that the client is complete through: a truthful bookmark.
// An error is a cache.ExpiredError: the log has moved past it; or ErrUnencodable: what follows
// cannot be encoded.
//
// It follows its feed, which is the log with the selector already applied. A cursor that is below
// the feed, or falls off it, reads the log itself until it meets the feed again: same frames, more
// work. A lagging cursor holds no events; its lag costs other clients nothing. One goroutine uses a
// cursor.
type Cursor struct {
	hub      *Hub             // that dispatches its feed
	selector *object.Selector // its feed's, which is equal to the request's, and there once
	encoding object.Encoding

	// Small, and beside each other, because there is a cursor for every watch.
	live             bool // it follows its feed
	inSeam           bool // between two entries of a seam
	futureRV         bool // the log has not reached completeRV yet: until it does, there is silence (W-106)
	limited, hasMore bool // see LimitWork

	feed         *Feed // nil: the log alone, the specification of the feed
	feedPosition feedPosition
	position     uint64 // in the log: everything below was returned
	completeRV   uint64
	scratch      []byte
}

// replayRunBytes is how many bytes of frames a cursor makes at once when it reads the log.
const replayRunBytes = 64 << 10

// CursorAt makes a cursor that begins at a log position at which the client is complete through rv.
// Close it.
func (v OwnerView) CursorAt(position, rv uint64, sel object.Selector, enc object.Encoding) *Cursor {
	hub, feed := v.hub.subscribe(v.owner, sel, enc)
	return &Cursor{
		hub: hub, selector: &feed.selector, encoding: enc, feed: feed, position: position, completeRV: rv,
	}
}

// CursorAfter makes a cursor for a client that has a state. Close it.
func (v OwnerView) CursorAfter(s *cache.Snapshot, sel object.Selector, enc object.Encoding) (*Cursor, error) {
	if s.Reached < s.RV {
		return v.CursorFromRV(s.RV, sel, enc)
	}
	return v.CursorAt(s.Next, s.RV, sel, enc), nil
}

// CursorFromRV makes a cursor for a client that has seen everything up to rv. It returns a
// cache.ExpiredError if history does not reach back to it.
func (v OwnerView) CursorFromRV(rv uint64, sel object.Selector, enc object.Encoding) (*Cursor, error) {
	future := rv > v.hub.resource.CompleteRV()
	position, err := v.hub.resource.Log().Find(rv)
	if err != nil {
		return nil, err
	}
	c := v.CursorAt(position, rv, sel, enc)
	c.futureRV = future
	return c, nil
}

// NewReplayCursor makes a cursor that reads the log alone. It is the specification: every other
// cursor must return the same events.
func (h *Hub) NewReplayCursor(position, rv uint64, sel object.Selector, enc object.Encoding) *Cursor {
	return &Cursor{hub: h, selector: &sel, encoding: enc, position: position, completeRV: rv}
}

// Selector is what the client sees. Immutable; all cursors of a feed have the same.
func (c *Cursor) Selector() *object.Selector { return c.selector }

// Close gives the feed back.
func (c *Cursor) Close() {
	if c.feed != nil {
		c.hub.releaseFeed(c.feed)
		c.feed = nil
	}
	c.live = false
}

// CompleteRV is the resourceVersion that the client is complete through, once it has everything
// that Next returned.
func (c *Cursor) CompleteRV() uint64 { return c.completeRV }

// IsInSeam reports that the client is between two entries of a seam, where its stream must neither
// end nor send a bookmark.
func (c *Cursor) IsInSeam() bool { return c.inSeam }

// IsLive reports that the cursor follows its feed. Unless it cannot, it does once Next has nothing
// left to return.
func (c *Cursor) IsLive() bool { return c.live }

// IsFutureRV reports that the log has not reached the client yet.
func (c *Cursor) IsFutureRV() bool { return c.futureRV }

// Lag is how many log entries the cursor has yet to pass.
func (c *Cursor) Lag() uint64 {
	head := c.hub.resource.Log().Head()
	return head - min(head, c.position)
}

// BufferedBytes is how many bytes of frames the cursor keeps for itself: none while it follows its
// feed, a run of them at most while it reads the log, however far behind it is.
func (c *Cursor) BufferedBytes() int { return cap(c.scratch) }

// Wait returns a channel that closes when there may be more. Take it before Next.
func (c *Cursor) Wait() <-chan struct{} { return c.Signal().Wait() }

// Signal wakes when there may be more: in the feed, or in the log. Next may change which.
func (c *Cursor) Signal() *ring.Signal {
	if c.live {
		return &c.feed.changed
	}
	return c.hub.resource.Signal()
}

// LimitWork bounds the work of one Next from now on, for a goroutine that serves many cursors: a
// cursor that reads the log matches its selector with a few entries, and then HasMore reports that
// there is more to read, frames or none.
func (c *Cursor) LimitWork() { c.limited = true }

// HasMore reports that the last Next ended early.
func (c *Cursor) HasMore() bool { return c.hasMore }

// workLimit is how much a limited cursor reads in one Next: so many entries, fewer if their
// objects have many labels. It is about as much work as one send.
const (
	workLimit      = 64
	labelsPerEntry = 32 // labels that are as much work as an entry
)

// workOf is what it costs to match a selector with an entry.
func workOf(e *cache.Entry) int {
	labels := 0
	for _, o := range []*object.Object{e.New, e.Old} {
		if o != nil {
			labels += o.NumLabels()
		}
	}
	return 1 + labels/labelsPerEntry
}

// Next returns the frames that follow, ready to send and valid until the next call; none if the
// client has everything.
func (c *Cursor) Next() ([]byte, error) {
	c.hasMore = false
	for {
		joined := c.joinFeed()
		if c.live {
			run, ok := c.readFeed()
			// A cursor that has just joined waited for the log, and so must not miss what the feed
			// has yet to show.
			if ok && (len(run) > 0 || !joined || c.Lag() == 0) {
				return run, nil
			}
			c.live = false
			if !ok {
				c.hub.stats.FeedOverruns.Add(1)
			}
		}
		run, moved, err := c.readLog()
		if err != nil || len(run) > 0 || !moved || c.hasMore {
			return run, err
		}
	}
}

// joinFeed moves a cursor that reads the log to its feed, if that reaches back to it.
func (c *Cursor) joinFeed() bool {
	if c.live || c.feed == nil || c.futureRV {
		return false
	}
	if c.feedPosition, c.live = c.feed.locate(c.position); c.live {
		c.scratch = nil
	}
	return c.live
}

// readFeed reads the feed. It reports false if the feed has moved past the cursor. Progress is read
// first: whatever is not in the feed then is above it.
func (c *Cursor) readFeed() (run []byte, ok bool) {
	progress := c.hub.progress.Load()
	run, last, next, ok := c.feed.read(c.feedPosition, c.position)
	if !ok {
		return nil, false
	}
	c.feedPosition = next
	switch {
	case len(run) > 0:
		c.position, c.completeRV, c.inSeam = last.next, last.completeRV, last.inSeam
	case progress.position > c.position:
		c.position, c.completeRV, c.inSeam = progress.position, progress.completeRV, false
	}
	return run, true
}

// readLog reads the log. moved says that it passed an entry: if there are no frames, the feed may
// reach back to the cursor now. An error comes after the frames in front of it.
func (c *Cursor) readLog() (run []byte, moved bool, err error) {
	before := c.position
	c.scratch = c.scratch[:0]
	err = c.fillRun(c.hub.resource.Log().Head())
	if len(c.scratch) > 0 {
		return c.scratch, true, nil
	}
	c.scratch = nil // a client that waits keeps nothing
	return nil, err == nil && c.position != before, err
}

// fillRun takes log entries until there is a run of frames, or none are left below head.
func (c *Cursor) fillRun(head uint64) error {
	log, work := c.hub.resource.Log(), 0
	for {
		switch {
		case c.limited && work >= workLimit:
			c.hasMore = c.position < head
			return nil
		case c.hub.resource.IsClosed():
			return &cache.ExpiredError{RequestedRV: c.completeRV, OldestRV: log.Floor()}
		case c.position >= head || len(c.scratch) >= c.hub.replayBytes():
			return nil
		}
		e, ok := log.EntryAt(c.position)
		if !ok {
			return &cache.ExpiredError{RequestedRV: c.completeRV, OldestRV: log.Floor()}
		}
		work += workOf(e)
		pass := c.takeEntry
		if c.futureRV {
			pass = c.skipToRV
		}
		if err := pass(e); err != nil {
			return err
		}
	}
}

// skipToRV takes a log entry for a cursor whose client resumed at a resourceVersion that the log
// had not reached. Below that resourceVersion it skips the entry. Once the log reaches it, skipToRV
// finds the position as for a client that resumes now, because a gap may have been closed
// meanwhile: if the gap began at that resourceVersion, the client needs the deletions of the seam;
// if it lies inside the gap, the cursor has expired.
func (c *Cursor) skipToRV(e *cache.Entry) error {
	if e.CompleteRV < c.completeRV {
		c.position++
		return nil
	}
	position, err := c.hub.resource.Log().Find(c.completeRV)
	if err != nil {
		return err
	}
	c.position, c.futureRV = position, false
	return nil
}

// takeEntry appends the frame of a log entry, if the client sees it, and passes the entry. An entry
// that cannot be shown is not passed.
func (c *Cursor) takeEntry(e *cache.Entry) error {
	if err := c.appendFrame(e); err != nil {
		return err
	}
	c.position++
	c.inSeam = e.Seam.IsOpen()
	c.completeRV = e.CompleteRV
	return nil
}

func (c *Cursor) appendFrame(e *cache.Entry) (err error) {
	t, o, seen := c.selector.EventFor(&e.Event)
	switch {
	case seen:
		c.scratch, err = AppendEvent(c.scratch, c.encoding, t, o, e.RV)
	case e.Seam == cache.SeamEnd && c.encoding.Bookmarks:
		c.scratch, err = AppendBookmark(c.scratch, c.encoding, c.hub.resource.BookmarkTemplate(), e.CompleteRV, false)
		return err
	default:
		return nil
	}
	if err == nil {
		c.hub.stats.ReplayedFrames.Add(1)
	}
	return err
}
