package fanout

// Standing is where a cursor stands, for metrics and logs.
type Standing struct {
	// First is the log position of the first entry that the client may have yet to receive, if
	// Pending says that there is one.
	First   uint64
	Pending bool
	// Last is the log position of the last event that its selector let through to it, or that it
	// began with, if Told says that this is known.
	Last uint64
	Told bool
}

// Standing tells where the cursor stands. It is as good as Next at that, and takes nothing.
func (c *Cursor) Standing() Standing {
	if !c.live {
		return Standing{First: c.position, Pending: !c.future && c.Lag() > 0}
	}
	return c.feed.standing(c.place, c.position)
}

// standing is that of a cursor at p, which has what lies below a log position.
func (f *Feed) standing(p place, position uint64) (s Standing) {
	kept := f.kept.Load() // before the marks are read, as in read
	if p.segment < kept.first {
		return Standing{First: position, Pending: true}
	}
	at := min(p.segment-kept.first, uint64(len(kept.segments)))
	taken := p.taken
	for _, segment := range kept.segments[at:] {
		marks := segment.visible()
		for taken < len(marks) && marks[taken].next <= position {
			taken++
		}
		if taken > 0 {
			s.Last, s.Told = marks[taken-1].next-1, true
		}
		if taken < len(marks) {
			s.First, s.Pending = marks[taken].next-1, true
			break
		}
		taken = 0
	}
	for i := at; i > 0 && !s.Told; i-- {
		if marks := kept.segments[i-1].visible(); len(marks) > 0 {
			s.Last, s.Told = marks[len(marks)-1].next-1, true
		}
	}
	return s
}
