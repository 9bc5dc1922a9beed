package cache

import (
	"fmt"
	"sort"
	"sync/atomic"
	"time"

	"spillway/internal/object"
	"spillway/internal/ring"
)

// Log is the recent history of one resource: immutable entries in the API server's order, found by
// position or by resourceVersion. One goroutine appends; any number read, without locks.
//
// A position is a process-local number that never leaves the process. A resourceVersion does not
// name a position by itself: the deletions of a seam repeat the one before the gap (see Find).
type Log struct {
	entries *ring.Ring[Entry]
	bytes   atomic.Int64 // of the entries kept; the appender's to change
	bounds  atomic.Pointer[bounds]
}

// bounds are the resourceVersions that a reader may start from.
type bounds struct {
	floorRV    uint64 // every event above it and up to completeRV is in the log
	position   uint64 // of the first entry that follows floorRV
	completeRV uint64
	greatestRV uint64 // promised by a history that is void; 0 once completeRV has reached it
	upstreamRV uint64 // where the API server was found since then; not everything up to it may be here
	voidRV     uint64 // resourceVersions below it are of a history that is void; 0: none is
	epoch      uint64 // how often reset made a history void
}

// Entry is an event in the log, or, if the event has no object, progress: nothing happened up to
// CompleteRV.
type Entry struct {
	object.Event
	// CompleteRV is what a reader is complete through once it has taken this entry. Inside a seam that
	// is the resourceVersion before the gap, until the seam's last entry.
	CompleteRV uint64
	// Seam marks an entry of a seam. A reader between two of them must not send a bookmark nor end.
	Seam Seam
}

// Seam is an entry's part in a seam.
type Seam uint8

// The parts of a seam.
const (
	NoSeam       Seam = iota
	SeamDeletion      // stamped with the resourceVersion before the gap
	SeamChange
	SeamEnd // progress to the new list's resourceVersion: a bookmark for every stream that takes them
)

// IsOpen reports that a reader which has taken an entry with this part is inside the seam.
func (s Seam) IsOpen() bool { return s == SeamDeletion || s == SeamChange }

// size is what the entry counts against the budget: the version it brought, or the one it took
// away.
func (e *Entry) size() int64 {
	const overhead = 160
	if o := e.Object(); o != nil {
		return int64(o.Size()) + overhead
	}
	return overhead
}

// ExpiredError says that history does not reach back to a resourceVersion. Its text is the API
// server's (W-107).
type ExpiredError struct {
	RequestedRV, OldestRV uint64
	// Void: RequestedRV belongs to a history that is void, so what followed it is unknown.
	Void bool
	// Message is the API server's own where it names no version, as that of an API server without a
	// watch cache does. "" stands for the message of W-107.
	Message string
}

// IsFutureRV reports that RequestedRV is beyond what is known of the history that replaced a void
// one. The API server has to say to which of the two it belongs (see Resource.NoteUpstreamRV).
func (e *ExpiredError) IsFutureRV() bool { return e.Void && e.RequestedRV > e.OldestRV }

// IsGap reports that the events after RequestedRV and up to OldestRV, where history goes on, are
// all that is missing.
func (e *ExpiredError) IsGap() bool { return !e.Void && e.RequestedRV < e.OldestRV }

func (e *ExpiredError) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return fmt.Sprintf("too old resource version: %d (%d)", e.RequestedRV, e.OldestRV)
}

func newLog() *Log {
	l := &Log{entries: ring.New[Entry](1)}
	l.bounds.Store(&bounds{})
	return l
}

// Head is the position that the next entry will have.
func (l *Log) Head() uint64 { return l.entries.Head() }

// First is the position of the oldest entry kept; Head if none is.
func (l *Log) First() uint64 { return l.entries.First() }

// HasPosition reports that the log has not moved past a position: a reader that has read up to it
// can read on.
func (l *Log) HasPosition(pos uint64) bool { return pos >= l.bounds.Load().position }

// EntryAt is the entry at a position below Head, or false if the log has moved past it.
func (l *Log) EntryAt(pos uint64) (*Entry, bool) {
	if !l.HasPosition(pos) { // before the entries are read: see reset
		return nil, false
	}
	return l.entries.At(pos)
}

// Floor is the oldest resourceVersion that a reader may start from.
func (l *Log) Floor() uint64 { return l.bounds.Load().floorRV }

// Epoch counts how often history was void. What was read in one epoch does not belong to another.
func (l *Log) Epoch() uint64 { return l.bounds.Load().epoch }

// Span is how many entries the log keeps, and since when.
func (l *Log) Span() (entries uint64, since time.Time) {
	first, head := l.entries.First(), l.entries.Head()
	if first >= head {
		return 0, time.Time{}
	}
	if e, ok := l.entries.At(first); ok {
		since = e.At
	}
	return head - first, since
}

// Bytes is what the entries take that are kept, as the limits of history count them.
func (l *Log) Bytes() int64 { return l.bytes.Load() }

// Find is the position from which a reader that is complete through rv must read on.
//
//   - At the resourceVersion before a gap, the first entry of the gap's seam: the deletions in the
//     seam carry that same resourceVersion. A reader that had them already may get them twice, but
//     must not miss them.
//   - Strictly inside a gap the history is unknown: an object may have come and gone. Expired.
//   - Above all that is known, the head: such a reader waits (W-106). But after history was void, a
//     resourceVersion that was promised before, and that the API server is not known to have
//     reached again, belongs to a past that no longer exists. Expired.
func (l *Log) Find(rv uint64) (pos uint64, err error) {
	for {
		b := l.bounds.Load()
		switch {
		case rv < b.floorRV:
			return 0, &ExpiredError{RequestedRV: rv, OldestRV: b.floorRV, Void: rv < b.voidRV}
		case rv > max(b.completeRV, b.upstreamRV) && b.greatestRV > b.completeRV:
			return 0, &ExpiredError{RequestedRV: rv, OldestRV: b.completeRV, Void: true}
		}
		head := l.Head()
		if pos, ok := l.search(b.position, head, rv); ok {
			return l.seamStart(b, pos, head, rv)
		}
	}
}

// search is the first position from from to head whose entry is newer than rv, or false if the log
// moved past from.
func (l *Log) search(from, head, rv uint64) (uint64, bool) {
	lapped := false
	length := int(head - min(head, from)) // #nosec G115 -- positions of one log, whose entries are in memory
	n := sort.Search(length, func(i int) bool {
		e, ok := l.EntryAt(from + uint64(i)) // #nosec G115 -- positions of one log, whose entries are in memory
		lapped = lapped || !ok
		return !ok || e.RV > rv
	})
	return from + uint64(n), !lapped // #nosec G115 -- positions of one log, whose entries are in memory
}

// seamStart moves a position found for rv to the start of the seam whose deletions repeat rv. It
// refuses an rv inside the gap that a seam closes: the seam is the difference between the states
// before and after the gap, so it lacks the deletion of an object that existed only in between.
func (l *Log) seamStart(b *bounds, pos, head, rv uint64) (uint64, error) {
	completeRV := b.floorRV // of a reader at pos
	if pos > b.position {
		e, ok := l.entries.At(pos - 1)
		if !ok {
			return 0, &ExpiredError{RequestedRV: rv, OldestRV: l.Floor()}
		}
		completeRV = e.CompleteRV
	}
	if pos < head && rv > completeRV {
		if e, ok := l.entries.At(pos); !ok || e.Seam != NoSeam {
			return 0, &ExpiredError{RequestedRV: rv, OldestRV: l.seamEnd(pos)}
		}
	}
	for pos > b.position {
		if e, ok := l.entries.At(pos - 1); !ok || e.Seam != SeamDeletion || e.RV != rv {
			break
		}
		pos--
	}
	return pos, nil
}

// seamEnd is the resourceVersion at which the seam that pos lies in is closed.
func (l *Log) seamEnd(pos uint64) uint64 {
	for ; pos < l.Head(); pos++ {
		if e, ok := l.entries.At(pos); ok && !e.Seam.IsOpen() {
			return e.CompleteRV
		}
	}
	return l.bounds.Load().completeRV
}

// append publishes entries so that readers see all of them or none.
func (l *Log) append(entries []Entry) {
	if len(entries) == 0 {
		return
	}
	for i := range entries {
		l.bytes.Add(entries[i].size())
	}
	b := *l.bounds.Load()
	b.completeRV = entries[len(entries)-1].CompleteRV
	if b.greatestRV <= b.completeRV {
		b.greatestRV = 0
	}
	l.entries.AppendAll(entries)
	l.bounds.Store(&b)
}

// reset forgets everything: history starts at rv. greatestRV is the greatest resourceVersion that
// was promised until now. A reader of the old history finds its position
// gone, even at the head: the entry that takes that position can never be read, because the bounds
// exclude it before it is there.
func (l *Log) reset(rv, greatestRV uint64) {
	l.bytes.Store(0)
	start := l.entries.Head() + 1
	b := &bounds{floorRV: rv, completeRV: rv, greatestRV: greatestRV, position: start}
	if old := l.bounds.Load(); old.position > 0 { // there was a history
		b.voidRV, b.epoch = rv, old.epoch+1
	}
	l.bounds.Store(b)
	l.entries.Append(Entry{Event: object.Event{RV: rv}, CompleteRV: rv})
	l.entries.Trim(start)
}

// noteUpstreamRV notes that the API server has reached rv in this history. It matters only as long
// as there are promises of an earlier one above it.
func (l *Log) noteUpstreamRV(rv uint64) {
	b := *l.bounds.Load()
	if b.greatestRV <= b.completeRV || rv <= b.upstreamRV {
		return
	}
	b.upstreamRV = rv
	l.bounds.Store(&b)
}

// raiseFloor keeps readers from starting below rv. Those that have started are not affected:
// entries stay where they are.
func (l *Log) raiseFloor(rv uint64) {
	b := *l.bounds.Load()
	b.floorRV = max(b.floorRV, rv)
	l.bounds.Store(&b)
}

// HistoryLimits bound the history of one resource.
type HistoryLimits struct {
	// HistoryBytes is the most that the log may hold, counted in bytes of JSON.
	HistoryBytes int64
	// HistoryMinAge is how long events are kept if HistoryBytes allows it. A client has a bookmark
	// each minute, which keeps its resourceVersion younger than 75 s (W-230).
	HistoryMinAge time.Duration
}

// trim drops the oldest entries: those beyond HistoryBytes, and of those beyond minBytes the ones
// that are older than HistoryMinAge. A seam goes whole, because its second half alone is false.
func (l *Log) trim(limits HistoryLimits, minBytes int64, now time.Time) {
	first, head := l.entries.First(), l.entries.Head()
	pos, floorRV := first, uint64(0)
	for pos < head {
		e, ok := l.entries.At(pos)
		young := ok && now.Sub(e.At) < limits.HistoryMinAge
		if bytes := l.bytes.Load(); !ok || bytes <= minBytes || young && bytes <= limits.HistoryBytes {
			break
		}
		for open := true; open && pos < head; pos++ {
			e, _ := l.entries.At(pos)
			l.bytes.Add(-e.size())
			open, floorRV = e.Seam.IsOpen(), e.CompleteRV
		}
	}
	if pos == first {
		return
	}
	b := *l.bounds.Load()
	b.floorRV, b.position = max(b.floorRV, floorRV), pos
	l.bounds.Store(&b)
	l.entries.Trim(pos)
}
