package fakeapiserver

import (
	"context"
	"net/http"
)

// changedLocked wakes everything that waits on this server.
func (s *Server) changedLocked() {
	close(s.wake)
	s.wake = make(chan struct{})
}

// Await waits until cond is true, and asks it again after every request, write, fault, and
// beginning or end of a watch. The error is the context's, or net/http's ErrServerClosed after
// Close.
func (s *Server) Await(ctx context.Context, cond func() bool) error {
	for {
		s.mu.Lock()
		wake := s.wake
		s.mu.Unlock()
		if cond() {
			return nil
		}
		if err := s.awaitChange(ctx, wake); err != nil {
			return err
		}
	}
}

// awaitHolding is Await for a condition that is called with mu held.
func (s *Server) awaitHolding(ctx context.Context, cond func() bool) error {
	for {
		s.mu.Lock()
		ok, wake := cond(), s.wake
		s.mu.Unlock()
		if ok {
			return nil
		}
		if err := s.awaitChange(ctx, wake); err != nil {
			return err
		}
	}
}

// awaitChange waits until wake is closed, or the request or the server is over.
func (s *Server) awaitChange(ctx context.Context, wake <-chan struct{}) error {
	select {
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return http.ErrServerClosed
	}
}
