package fakeapiserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ending is how a stream is ended by a fault.
type ending int

const (
	endClean ending = iota // terminator, connection stays
	endCut                 // half an event, connection gone
)

// stream is one client's watch: a position among the changes of its resource. It pulls; nothing is
// queued for it.
type stream struct {
	server *Server
	query  *query
	w      http.ResponseWriter
	conn   *conn

	lifetime time.Duration
	deadline time.Time
	isProof  bool // see isProof
	isZipped bool

	// Fixed when it starts; the deliverer's from then on.
	started       bool   // guarded by Server.mu
	rv            uint64 // events and bookmarks up to here are not sent
	passed        uint64 // RV of the last change that was looked at
	position      int    // of the first change that is not sent yet
	replayEnd     int    // changes before it were stored when the stream started: sent even if lost or held
	initial       []*Obj // to be sent as initial events
	owesEndMarker bool   // the bookmark that ends the initial events

	stop    chan ending // capacity 1: the first wish counts
	writing atomic.Bool // may be stuck in a write, and deaf to stop
}

func (s *Server) newStream(w http.ResponseWriter, r *http.Request, q *query, rv uint64) *stream {
	st := &stream{
		server: s, query: q, w: w, conn: connOf(r.Context()), rv: rv, lifetime: q.lifetime(),
		isProof: isProof(r.URL.Query()), stop: make(chan ending, 1),
	}
	st.deadline = time.Now().Add(st.lifetime)
	s.mu.Lock()
	defer s.mu.Unlock()
	q.table.streams[st] = struct{}{}
	s.changedLocked()
	return st
}

func (s *Server) close(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(st.query.table.streams, st)
	s.changedLocked()
}

// stopStreams makes all streams of a resource end. One that is stuck in a write cannot notice it:
// its connection is closed if it is to be cut.
func (t *table) stopStreams(how ending) {
	for st := range t.streams {
		select {
		case st.stop <- how:
		default:
		}
		if how == endCut && st.writing.Load() && st.conn != nil {
			st.conn.reset()
		}
	}
}

// sendHead sends status line and headers, which come before any event (W-102).
func (st *stream) sendHead(zip bool) {
	h := st.w.Header()
	h.Set("Content-Type", "application/json")
	if st.isZipped = zip; zip {
		h.Set("Content-Encoding", "gzip")
		h.Set("Vary", "Accept-Encoding")
	}
	st.w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(st.w).Flush()
}

// run sends what there is to send until the stream ends.
func (st *stream) run(ctx context.Context) {
	timer := newBookmarkTimer(st)
	defer timer.Stop()
	bookmarkDue := false
	for {
		b := st.nextBatch(bookmarkDue)
		frames, corrupt := st.encode(b)
		if !st.write(frames) || corrupt {
			return
		}
		bookmarkDue = false
		select {
		case how := <-st.stop:
			st.finish(how)
			return
		case <-ctx.Done(): // deadline, or the client left
			return
		case <-st.server.done:
			return
		case <-b.wake:
		case <-timer.C:
			bookmarkDue = true
			timer.next()
		}
	}
}

// batch is what a stream is to send now.
type batch struct {
	changes  []*change
	bookmark uint64        // 0: none is due
	wake     chan struct{} // closed when there may be more
}

// nextBatch moves the position over what may be sent now. A bookmark comes with it if one is due
// and every change before it is in this batch too (W-111).
func (st *stream) nextBatch(bookmarkDue bool) batch {
	s, t := st.server, st.query.table
	s.mu.Lock()
	defer s.mu.Unlock()
	b := batch{wake: t.wake}
	if len(st.stop) > 0 {
		return b // run hears it next; storage may be another one now
	}
	st.writing.Store(true) // under mu, so that stopStreams sees every stream that did not hear it
	for end := max(t.sent, st.replayEnd); st.position < end; st.position++ {
		if c := t.at(st.position); !c.lost || st.position < st.replayEnd {
			b.changes = append(b.changes, c)
		}
	}
	if bookmarkDue && st.position >= t.sent && st.query.options.AllowWatchBookmarks && !t.noBookmarks {
		b.bookmark = t.dispatched()
	}
	return b
}

// encode makes frames of the initial events and their end marker, of changes, and of a bookmark.
// corrupt means that they end with an ERROR.
func (st *stream) encode(b batch) (frames []byte, corrupt bool) {
	var out bytes.Buffer
	shown, kind := st.query.shown, st.query.table.kind
	for _, o := range st.initial {
		appendFrame(&out, "ADDED", shown.object(o))
	}
	st.initial = nil
	if st.owesEndMarker {
		st.owesEndMarker = false
		appendFrame(&out, "BOOKMARK", shown.encoded(kind.bookmark(st.rv, true)))
	}
	for _, c := range b.changes {
		if c.corrupt {
			appendFrame(&out, "ERROR", mustJSON(statusOf(failed(http.StatusInternalServerError,
				metav1.StatusReasonStoreReadError, "saw a DELETED event, but object data is corrupt", nil))))
			return out.Bytes(), true
		}
		st.passed = c.RV
		if event, raw := st.eventOf(c); event != "" {
			appendFrame(&out, event, raw)
		}
	}
	if b.bookmark > st.rv && b.bookmark >= st.passed {
		appendFrame(&out, "BOOKMARK", shown.encoded(kind.bookmark(b.bookmark, false)))
	}
	return out.Bytes(), false
}

// eventOf is the type and the object that this client receives of a change (W-103). No type:
// nothing.
func (st *stream) eventOf(c *change) (event string, raw []byte) {
	if c.RV <= st.rv {
		return "", nil
	}
	matches, matched := st.query.selector.matches(c.New), st.query.selector.matches(c.Old)
	switch {
	case matches && matched:
		return "MODIFIED", st.query.shown.object(c.New)
	case matches:
		return "ADDED", st.query.shown.object(c.New)
	case matched:
		return "DELETED", st.query.shown.object(c.last())
	}
	return "", nil
}

// appendFrame appends one event as it goes on the wire (W-130).
func appendFrame(out *bytes.Buffer, event string, raw []byte) {
	out.WriteString(`{"type":"` + event + `","object":`)
	out.Write(raw)
	out.WriteString("}\n")
}

// write sends frames in one flush; gzip'd, each flush is a member of its own (W-7). False means
// that the client is gone.
func (st *stream) write(frames []byte) bool {
	defer st.writing.Store(false)
	if len(frames) == 0 {
		return true
	}
	if st.isZipped {
		var member bytes.Buffer
		z, _ := gzip.NewWriterLevel(&member, gzip.BestSpeed) // the level is legal
		_, _ = z.Write(frames)
		_ = z.Flush() // a reader sees all of it before it looks for the next member
		_ = z.Close()
		frames = member.Bytes()
	}
	if _, err := st.w.Write(frames); err != nil {
		return false
	}
	return http.NewResponseController(st.w).Flush() == nil
}

// sendError ends the stream with an ERROR event (W-107, W-108).
func (st *stream) sendError(err error) {
	var out bytes.Buffer
	appendFrame(&out, "ERROR", mustJSON(statusOf(err)))
	st.write(out.Bytes())
}

// finish ends the stream as a fault wants: by returning, or in the middle of a chunk.
func (st *stream) finish(how ending) {
	if how == endClean {
		return
	}
	raw, buffered, err := http.NewResponseController(st.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // h2: RST_STREAM
	}
	_, _ = buffered.WriteString("400\r\n" + `{"type":"MODIFIED","object":{"kind":"`)
	_ = buffered.Flush()
	_ = raw.Close()
}
