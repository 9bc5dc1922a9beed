package fanout

// CursorPosition is what a client has received and what it has not, for metrics and logs.
type CursorPosition struct {
	// First is the log position of the first entry that the client may have yet to receive, if
	// Pending says that there is one.
	First   uint64
	Pending bool
	// Last is the log position of the last event that its selector let through to it, or that it
	// began with, if LastKnown says that there is one.
	Last      uint64
	LastKnown bool
}

// Position is where the cursor is. It is as exact as Next, and does not move the cursor.
func (c *Cursor) Position() CursorPosition {
	if !c.live {
		return CursorPosition{First: c.position, Pending: !c.futureRV && c.Lag() > 0}
	}
	return c.feed.positionOf(c.feedPosition, c.position)
}

// positionOf is the position of a cursor at p, which has what lies below a log position.
func (f *Feed) positionOf(p feedPosition, position uint64) (s CursorPosition) {
	kept := f.segments.Load() // first, as in read
	if p.segment < kept.first {
		return CursorPosition{First: position, Pending: true}
	}
	at := min(p.segment-kept.first, uint64(len(kept.segments)))
	taken := p.taken
	for _, segment := range kept.segments[at:] {
		ends := segment.publishedEnds()
		for taken < len(ends) && ends[taken].next <= position {
			taken++
		}
		if taken > 0 {
			s.Last, s.LastKnown = ends[taken-1].next-1, true
		}
		if taken < len(ends) {
			s.First, s.Pending = ends[taken].next-1, true
			break
		}
		taken = 0
	}
	for i := at; i > 0 && !s.LastKnown; i-- {
		if ends := kept.segments[i-1].publishedEnds(); len(ends) > 0 {
			s.Last, s.LastKnown = ends[len(ends)-1].next-1, true
		}
	}
	return s
}
