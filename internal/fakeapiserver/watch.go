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
func (s *Server) serveWatch(w http.ResponseWriter, r *http.Request, at target) error {
	q, err := s.parseQuery(r, at, verbWatch)
	if err != nil {
		return err
	}
	if at.table.kind.Unwatchable {
		return apierrors.NewMethodNotSupported(at.table.kind.GVR.GroupResource(), verbWatch)
	}
	rv, err := parseRV(q.options.ResourceVersion)
	if err != nil {
		return err
	}
	st := s.newStream(w, r, q, rv)
	defer s.close(st)
	if st.lifetime <= 0 {
		st.sendHead(false)
		return nil
	}
	st.sendHead(s.compresses(r, q))
	ctx, cancel := context.WithTimeout(r.Context(), st.lifetime)
	defer cancel()
	if err := s.open(ctx, st); err != nil {
		st.sendError(err)
		return nil
	}
	st.run(ctx)
	return nil
}

// lifetime is how long a watch lasts (W-29). Zero or less ends it at once.
func (q *query) lifetime() time.Duration {
	if n := q.options.TimeoutSeconds; n != nil && *n != 0 {
		return time.Duration(*n) * time.Second
	}
	return minWatchTimeout + rand.N(minWatchTimeout)
}

// open finds where the stream starts: its initial events and its position among the changes
// (W-100). An error goes on the stream.
func (s *Server) open(ctx context.Context, st *stream) error {
	o, t, watchList := &st.query.options, st.query.table, st.query.isWatchList()
	switch {
	case watchList && o.ResourceVersion == "":
		return s.openConsistent(ctx, st)
	case watchList, o.SendInitialEvents == nil && st.rv == 0: // the second without the gate WatchList
		return s.reach(ctx, t, st.rv, func() { s.startWithStateLocked(st) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch o.ResourceVersion {
	case "": // sendInitialEvents=false: from storage's present on
		st.rv = s.rev
	case "0": // from the cache's present on
		st.rv = t.progress
	default:
		if st.rv < t.floor {
			return expiredWatch(st.rv, t.floor)
		}
	}
	s.startLocked(st, t.after(st.rv))
	return nil
}

// openConsistent starts a stream from a state that holds everything stored before the request
// (W-101, W-215).
func (s *Server) openConsistent(ctx context.Context, st *stream) error {
	if !s.awaitReads(ctx, ConsistentReads) {
		// W-66
		return failed(http.StatusInternalServerError, metav1.StatusReasonInternalError, "context deadline exceeded", nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progressLocked()
	s.startWithStateLocked(st)
	return nil
}

// startLocked puts the stream at a position, from which on it is sent all changes that are stored.
func (s *Server) startLocked(st *stream, position int) {
	st.position, st.replayEnd, st.started = position, st.query.table.end(), true
	s.changedLocked()
}

// startWithStateLocked puts the stream at the present, with the state there as initial events.
func (s *Server) startWithStateLocked(st *stream) {
	now := st.query.table.currentLocked()
	st.rv = now.rv
	st.owesEndMarker = st.query.isWatchList() && st.query.options.AllowWatchBookmarks
	now.objects.Scan(func(_ string, o *Obj) bool {
		if st.query.selector.matches(o) {
			st.initial = append(st.initial, o)
		}
		return true
	})
	s.startLocked(st, st.query.table.end())
}
