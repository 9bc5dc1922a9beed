package fakeapiserver

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serveWatch answers a watch request: checks, the head, then the stream (§6).
func (s *Server) serveWatch(w http.ResponseWriter, r *http.Request, q *query, proof bool) {
	t := q.table
	if t.kind.Unwatchable {
		writeError(w, r, apierrors.NewMethodNotSupported(t.kind.GVR.GroupResource(), "watch"))
		return
	}
	rv, err := parseRV(q.options.ResourceVersion)
	if err != nil {
		writeError(w, r, err)
		return
	}
	shown, err := negotiate(r, true, true)
	if err != nil {
		writeError(w, r, err)
		return
	}
	q.form = shown
	st := s.newStream(w, r, q, rv, proof)
	defer s.close(st)
	if st.lifetime <= 0 {
		st.head(false)
		return
	}
	st.head(s.compressed(r, q))
	ctx, cancel := context.WithTimeout(r.Context(), st.lifetime)
	defer cancel()
	if err := s.open(ctx, st); err != nil {
		st.fail(err)
		return
	}
	st.run(ctx)
}

// watchList reports whether the stream begins with the state, after the server's own defaulting
// (W-101).
func (q *query) watchList() bool {
	return q.options.SendInitialEvents != nil && *q.options.SendInitialEvents
}

// lifetime is how long a watch lasts (W-29). Zero or less ends it at once.
func (s *Server) lifetime(q *query) time.Duration {
	if n := q.options.TimeoutSeconds; n != nil && *n != 0 {
		return time.Duration(*n) * time.Second
	}
	return s.opts.MinRequestTimeout + rand.N(s.opts.MinRequestTimeout) // #nosec G404 -- spreads times
}

// open finds where the stream starts: its initial events and its position among the changes
// (W-100). An error goes on the stream.
func (s *Server) open(ctx context.Context, st *stream) error {
	o, t := &st.query.options, st.query.table
	unset := o.ResourceVersion == ""
	switch {
	case unset && st.query.watchList():
		return s.openConsistent(ctx, st)
	case st.query.watchList(), o.SendInitialEvents == nil && st.rv == 0: // the second without the gate WatchList
		return s.reached(ctx, t, st.rv, func() { s.startLocked(st, true) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case unset: // sendInitialEvents=false: from storage's present on
		st.rv = s.rev
	case o.ResourceVersion == "0": // from the cache's present on
		st.rv = s.positionLocked(t)
	default:
		floor := t.floor
		if t.kind.Uncached {
			floor = max(s.compacted, t.oldest)
		}
		if st.rv < floor {
			return expiredWatch(t.kind, st.rv, floor)
		}
	}
	s.startLocked(st, false)
	return nil
}

// openConsistent starts a stream from a state that holds everything stored before the request
// (W-101, W-215).
func (s *Server) openConsistent(ctx context.Context, st *stream) error {
	if !s.stalled(ctx, ConsistentReads) {
		// W-66
		return failed(http.StatusInternalServerError, metav1.StatusReasonInternalError, "context deadline exceeded", nil)
	}
	s.mu.Lock()
	target := s.rev
	s.progressLocked()
	s.mu.Unlock()
	return s.reached(ctx, st.query.table, target, func() { s.startLocked(st, true) })
}

// startLocked puts the stream at the cache's present, with its state as initial events, or behind
// st.rv in history.
func (s *Server) startLocked(st *stream, initial bool) {
	t := st.query.table
	st.replay, st.started = t.cached, true
	s.changedLocked()
	if !initial {
		st.position = min(t.after(st.rv), t.cached)
		return
	}
	now := s.cachedLocked(t)
	st.position, st.rv = t.cached, now.rv
	st.endMarker = st.query.watchList() && st.query.options.AllowWatchBookmarks && !(st.proof && s.faults.neverProve)
	now.objects.Scan(func(_ string, o *Obj) bool {
		if st.query.selector.matches(o) {
			st.initial = append(st.initial, o)
		}
		return true
	})
}

// stalled waits while reads of this kind are stalled; false means that the request is over.
func (s *Server) stalled(ctx context.Context, kind Reads) bool {
	return s.await(ctx, 0, func() bool { return s.faults.stall < kind })
}
