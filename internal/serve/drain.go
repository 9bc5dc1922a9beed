package serve

import (
	"context"
	"time"
)

// Drain ends the streams one by one, spread over about the period, each right after a bookmark, so that clients come back
// with a fresh resourceVersion and not all at once (design D14). New watches are refused from now on, and who has an HTTP/2
// connection is told at once to open another one for what he asks next, best at somebody who stays. It returns when no stream is left, and
// otherwise when ctx ends; who has not been told by then is told all the same, and has a moment for it.
func (s *Server) Drain(ctx context.Context, period time.Duration) {
	s.mu.Lock()
	s.mu.draining = true
	streams := make([]*stream, 0, len(s.mu.streams))
	for st := range s.mu.streams {
		streams = append(streams, st)
	}
	s.mu.Unlock()
	s.http2.goAway()
	left := make(chan struct{})
	go func() {
		s.active.Wait()
		close(left)
	}()

	began, spread := time.Now(), period*9/10 // the last tenth is for streams to send their ends
	late := false
	for i, st := range streams {
		if st.ending() == "" {
			pauseUntil(ctx, left, began.Add(spread*time.Duration(i)/time.Duration(len(streams))))
			late = late || ctx.Err() != nil
			st.interrupt(EndDrain)
		}
	}
	select {
	case <-left:
		return
	case <-ctx.Done():
	}
	if late {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		select {
		case <-left:
		case <-within.Done():
		}
	}
}

// farewell is how long those may take to end who were told when the time was over, as after a pause of the whole process.
const farewell = time.Second

// closeStreams cuts the streams that are left: some may be waiting for clients that do not read.
func (s *Server) closeStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.mu.streams {
		if st.out != nil { // else its handler has yet to attach it, and finds the server closed
			st.out.cut()
		}
	}
}

// pauseUntil waits for a time, not a while, so that who is late makes nobody after him later; or until ctx ends, or nobody is left.
func pauseUntil(ctx context.Context, nobody <-chan struct{}, at time.Time) {
	left := time.Until(at)
	if left <= 0 || ctx.Err() != nil {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-nobody:
	case <-ctx.Done():
	}
}
