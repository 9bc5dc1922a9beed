package fanout

import "testing"

// stands checks where a cursor stands: the resourceVersions of the first event that it has yet to
// dispatchEntry, and of the last that it told; 0: none.
func (w *world) stands(c *Cursor, first, last uint64) {
	w.Helper()
	s := c.Position()
	at := func(known bool, position uint64) uint64 {
		if !known {
			return 0
		}
		e, ok := w.resource.Log().EntryAt(position)
		if !ok {
			w.Fatalf("the log has nothing at %d", position)
		}
		return e.RV
	}
	if gotFirst, gotLast := at(s.Pending, s.First), at(s.LastKnown, s.Last); gotFirst != first || gotLast != last {
		w.Fatalf("first %d, last %d; want %d, %d", gotFirst, gotLast, first, last)
	}
}

// What its selector does not see is nothing that a client lags.
func TestACursorDoesNotLagForUnselectedEvents(t *testing.T) {
	w := newWorld(t, plenty)
	w.hub.Dispatch()
	web := w.live(app("web"), plain)
	w.hub.Dispatch()
	w.expect(web)
	w.stands(web, 0, 0)
	w.set("a/x", "db") // 102
	w.set("a/x", "db")
	w.hub.Dispatch()
	w.stands(web, 0, 0)
	w.set("a/y", "web") // 104
	w.stands(web, 0, 0) // its feed has not heard of it either
	w.hub.Dispatch()
	w.stands(web, 104, 0)
	w.set("a/z", "web")
	w.hub.Dispatch()
	w.stands(web, 104, 0)
	w.expect(web, "ADDED a/y 104", "ADDED a/z 105")
	w.stands(web, 0, 105)
	w.set("a/x", "db")
	w.hub.Dispatch()
	w.stands(web, 0, 105)

	other := w.live(app("web"), plain) // a later cursor begins with it
	w.expect(other)
	w.stands(other, 0, 105)
	other.Close()

	// Its last change is found in earlier segments, too; and if its feed moves past it, the log shows
	// the next one.
	for range 40 {
		w.setPadded("a/y", "web", minSegmentBytes/4)
		w.hub.Dispatch()
	}
	w.stands(web, 107, 105)
	for range minSegments {
		w.setPadded("a/y", "web", segmentBytesPerStream)
		w.hub.Dispatch()
	}
	w.stands(web, 106, 0)
	web.Close()
}

func TestPositionOfCursorOnTheLog(t *testing.T) {
	w := newWorld(t, plenty)
	c := w.live(app("web"), plain)
	defer c.Close()
	w.stands(c, 0, 0)
	w.set("a/x", "web") // 102
	w.set("a/x", "web")
	w.stands(c, 102, 0)
	w.expect(c, "ADDED a/x 102", "MODIFIED a/x 103")
	w.stands(c, 0, 0)
	future := w.resume(1000, everything, plain)
	defer future.Close()
	w.set("a/x", "web")
	w.stands(future, 0, 0)
}
