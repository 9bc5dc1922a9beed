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

// ending is how a stream is to be ended from outside.
type ending int

const (
	endClean ending = iota // terminator, connection stays
	endCut                 // half an event, connection gone
)

// stream is one client's watch: a position among the changes of its resource. It pulls; nothing is
// queued for it. If the changes at its position are forgotten while its client does not read, it
// ends cleanly, as upstream ends slow clients (W-113).
type stream struct {
	server *Server
	query  *query
	w      http.ResponseWriter
	conn   *conn

	rv       uint64 // events and bookmarks up to here are not sent
	passed   uint64 // RV of the last change looked at
	position int    // first change not sent yet
	replay   int    // changes before this were in the cache when the stream opened: sent whether dispatched or not
	initial  []*Obj
	started  bool // position is fixed; guarded by Server.mu

	endMarker bool // owed: the bookmark that ends the initial events
	lifetime  time.Duration
	deadline  time.Time
	proof     bool
	zip       bool

	stop    chan ending // capacity 1: the first wish counts
	writing atomic.Bool // may be stuck in a write, and deaf to stop
}

func (s *Server) newStream(w http.ResponseWriter, r *http.Request, q *query, rv uint64, proof bool) *stream {
	st := &stream{
		server: s, query: q, w: w, conn: connOf(r.Context()), rv: rv, lifetime: s.lifetime(q), proof: proof,
		stop: make(chan ending, 1),
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

// stop asks all streams of a resource to end. One that is stuck writing cannot hear it: its
// connection is closed if it is to be cut.
func (t *table) stop(how ending) {
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

// head sends status line and headers before any event (W-102).
func (st *stream) head(zip bool) {
	h := st.w.Header()
	h.Set("Content-Type", "application/json")
	if st.zip = zip; zip {
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
	due := false
	for {
		batch := st.take(due)
		if batch.lapped || !st.write(batch.frames) || batch.over {
			return
		}
		due = false
		select {
		case how := <-st.stop:
			st.finish(how)
			return
		case <-ctx.Done(): // deadline, or the client left
			return
		case <-st.server.done:
			return
		case <-batch.wake:
		case <-timer.C:
			due = true
			timer.next()
		}
	}
}

// batch is what a stream has to send now.
type batch struct {
	frames []byte
	lapped bool
	over   bool          // they end with an ERROR
	wake   chan struct{} // closed when there may be more
}

// take collects the next frames: initial events and their end marker, changes, and a bookmark if
// one is due and everything before it is in this batch too (W-111).
func (st *stream) take(bookmarkDue bool) batch {
	var out bytes.Buffer
	for _, o := range st.initial {
		st.frame(&out, "ADDED", st.query.form.object(o))
	}
	st.initial = nil
	if st.endMarker {
		st.endMarker = false
		st.frame(&out, "BOOKMARK", st.query.form.raw(st.query.table.kind.bookmark(st.rv, true)))
	}
	changes, b, bookmark := st.advance(bookmarkDue)
	for _, c := range changes {
		st.passed = c.RV
		if c.corrupt {
			st.frame(&out, "ERROR", mustJSON(statusOf(failed(http.StatusInternalServerError,
				metav1.StatusReasonStoreReadError, "saw a DELETED event, but object data is corrupt", nil))))
			b.over = true
			break
		}
		if kind, raw := st.seen(c); raw != nil {
			st.frame(&out, kind, raw)
		}
	}
	if !b.over && bookmark > st.rv && bookmark >= st.passed {
		st.frame(&out, "BOOKMARK", st.query.form.raw(st.query.table.kind.bookmark(bookmark, false)))
	}
	b.frames = out.Bytes()
	return b
}

// advance moves the position over what may be sent now.
func (st *stream) advance(bookmarkDue bool) (changes []*change, b batch, bookmark uint64) {
	s, t := st.server, st.query.table
	s.mu.Lock()
	defer s.mu.Unlock()
	b.wake = t.wake
	if len(st.stop) > 0 {
		return nil, b, 0 // run hears it next
	}
	st.writing.Store(true) // under mu, so that stop sees every stream that did not hear it
	if st.position < t.dropped {
		b.lapped = true
		return nil, b, 0
	}
	for until := max(t.sent, st.replay); st.position < until; st.position++ {
		if c := t.at(st.position); !c.lost || st.position < st.replay {
			changes = append(changes, c)
		}
	}
	if bookmarkDue && st.position >= t.sent && st.mayBookmarkLocked() {
		bookmark = t.dispatched()
	}
	return changes, b, bookmark
}

func (st *stream) mayBookmarkLocked() bool {
	t := st.query.table
	return st.query.options.AllowWatchBookmarks && t.bookmarks && !t.kind.Uncached &&
		!(st.proof && st.server.faults.neverProve)
}

// seen is what this client receives of a change (W-103).
func (st *stream) seen(c *change) (kind string, raw []byte) {
	if c.RV <= st.rv {
		return "", nil
	}
	now, before := st.query.selector.matches(c.New), st.query.selector.matches(c.Old)
	switch {
	case now && before:
		return "MODIFIED", st.query.form.object(c.New)
	case now:
		return "ADDED", st.query.form.object(c.New)
	case before:
		return "DELETED", st.query.form.object(c.last(st.query.table.kind))
	}
	return "", nil
}

// frame appends one event as it goes on the wire (W-130).
func (st *stream) frame(out *bytes.Buffer, kind string, raw []byte) {
	out.WriteString(`{"type":"` + kind + `","object":`)
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
	if st.zip {
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

// fail ends the stream with an ERROR event (W-107, W-108).
func (st *stream) fail(err error) {
	var out bytes.Buffer
	st.frame(&out, "ERROR", mustJSON(statusOf(err)))
	st.write(out.Bytes())
}

// finish ends the stream as the test wishes: by returning, or in the middle of a chunk.
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
