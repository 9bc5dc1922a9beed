package fakeapiserver

import "context"

// state is what a read sees: all objects of a resource as of one revision. The reader owns it.
type state struct {
	objects *objects
	rv      uint64
}

// currentLocked is the state of the watch cache: what any-age and not-older-than reads see.
func (t *table) currentLocked() state { return state{t.objects.Copy(), t.progress} }

// consistent is the state that holds all that was stored when it was called (W-210).
func (s *Server) consistent(t *table) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progressLocked()
	return t.currentLocked()
}

// notOlder waits for revision rv, and returns the watch cache's state (W-65, W-68).
func (s *Server) notOlder(ctx context.Context, t *table, rv uint64) (state, error) {
	var st state
	err := s.reach(ctx, t, rv, func() { st = t.currentLocked() })
	return st, err
}

// reach waits for revision rv, brings the watch cache to it, and then runs do with mu held.
func (s *Server) reach(ctx context.Context, t *table, rv uint64, do func()) error {
	return s.awaitRevision(ctx, rv, func() {
		if t.progress < rv {
			s.progressLocked()
		}
		do()
	})
}

// exact waits for revision rv, and returns the state there. The error is gone if storage no longer
// knows it.
func (s *Server) exact(ctx context.Context, t *table, rv uint64, gone error) (state, error) {
	var st state
	known := false
	if err := s.awaitRevision(ctx, rv, func() {
		if known = rv >= max(s.compacted, t.oldest); known {
			st = state{t.view(t.after(rv)), rv}
		}
	}); err != nil {
		return st, err
	}
	if !known {
		return st, gone
	}
	return st, nil
}

// awaitRevision waits for tooLargeWait until storage has come to rv, and then runs do with mu held.
func (s *Server) awaitRevision(ctx context.Context, rv uint64, do func()) error {
	ctx, cancel := context.WithTimeout(ctx, tooLargeWait)
	defer cancel()
	var current uint64
	if s.awaitHolding(ctx, func() bool {
		if current = s.rev; current < rv {
			return false
		}
		do()
		return true
	}) != nil {
		return tooLarge(rv, current)
	}
	return nil
}
