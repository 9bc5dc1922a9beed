package fakeapiserver

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// state is what a read sees: all objects of a resource as of one revision. The reader owns it.
type state struct {
	objects *objects
	rv      uint64
}

// cachedLocked is the state of the watch cache: what any-age and not-older-than reads see.
func (s *Server) cachedLocked(t *table) state {
	if t.kind.Uncached {
		return state{t.objects.Copy(), s.rev}
	}
	return state{t.view(t.cached), t.progress}
}

// exactLocked is the state at revision rv (<= s.rev), if storage still knows it.
func (s *Server) exactLocked(t *table, rv uint64) (state, bool) {
	if rv < max(s.compacted, t.oldest) {
		return state{}, false
	}
	return state{t.view(t.after(rv)), rv}, true
}

// await runs cond, with mu held, whenever something changed, until it is true. False means that d
// passed (0: no limit) or ctx ended.
func (s *Server) await(ctx context.Context, d time.Duration, cond func() bool) bool {
	var expired <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		expired = timer.C
	}
	for {
		s.mu.Lock()
		ok, wake := cond(), s.wake
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-wake:
		case <-expired:
			return false
		case <-ctx.Done():
			return false
		case <-s.done:
			return false
		}
	}
}

// consistent waits until the watch cache has all that was stored when it was called, and returns
// its state (W-210). A cache that does not come so far in time is passed over: the state then is
// storage's own.
func (s *Server) consistent(ctx context.Context, t *table) state {
	s.mu.Lock()
	target := s.rev
	s.mu.Unlock()
	var st state
	if s.await(ctx, s.opts.TooLargeWait, func() bool {
		s.progressLocked()
		if t.progress < target {
			return false
		}
		st = s.cachedLocked(t)
		return true
	}) {
		return st
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return state{t.objects.Copy(), s.rev}
}

// notOlder waits until the watch cache has come to rv, and returns its state (W-65, W-68).
func (s *Server) notOlder(ctx context.Context, t *table, rv uint64) (state, error) {
	var st state
	err := s.reached(ctx, t, rv, func() { st = s.cachedLocked(t) })
	return st, err
}

// reached waits until the watch cache has come to rv and runs then with mu held.
func (s *Server) reached(ctx context.Context, t *table, rv uint64, then func()) error {
	wait := s.opts.TooLargeWait
	if t.kind.Uncached {
		wait = time.Nanosecond // storage knows at once (§4.6)
	}
	var current uint64
	if s.await(ctx, wait, func() bool {
		if current = s.positionLocked(t); current < rv {
			s.progressLocked()
			current = s.positionLocked(t)
		}
		if current < rv {
			return false
		}
		then()
		return true
	}) {
		return nil
	}
	return tooLarge(rv, current, !t.kind.Uncached)
}

// positionLocked is the RV of the watch cache, or of storage for resources without one.
func (s *Server) positionLocked(t *table) uint64 {
	if t.kind.Uncached {
		return s.rev
	}
	return t.progress
}

// serveGet answers a GET of one object (W-34, W-95).
func (s *Server) serveGet(w http.ResponseWriter, r *http.Request, at target) {
	shown, err := negotiate(r, false, false)
	if err != nil {
		writeError(w, r, err)
		return
	}
	asked := r.URL.Query().Get("resourceVersion")
	rv, err := parseRV(asked)
	if err != nil {
		if at.table.kind.Uncached {
			err = apierrors.NewBadRequest(err.Error())
		}
		writeError(w, r, err)
		return
	}
	var st state
	if asked == "" {
		s.mu.Lock()
		st = state{at.table.objects.Copy(), s.rev}
		s.mu.Unlock()
	} else if st, err = s.notOlder(r.Context(), at.table, rv); err != nil {
		writeError(w, r, err)
		return
	}
	o, ok := st.objects.Get(at.table.kind.key(at.namespace, at.name))
	if !ok {
		writeError(w, r, apierrors.NewNotFound(at.table.kind.GVR.GroupResource(), at.name))
		return
	}
	s.respond(w, r, http.StatusOK, shown.object(o))
}
