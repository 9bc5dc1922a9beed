package serve

import (
	"context"
	"time"
)

// Drain ends the streams one by one, spread over about the period, each right after a bookmark, so that clients come back
// with a fresh resourceVersion and not all at once (design D14). New watches are refused from now on, and who has an HTTP/2
// connection is told at once to open another one for what he asks next, best at somebody who stays. It returns early when no
// stream is left, and at the latest when ctx ends.
func (s *Server) Drain(ctx context.Context, period time.Duration) {
	s.mu.Lock()
	s.mu.draining = true
	streams := make([]*stream, 0, len(s.mu.streams))
	for st := range s.mu.streams {
		streams = append(streams, st)
	}
	s.mu.Unlock()
	s.http2.goAway()

	if len(streams) > 0 {
		// The last tenth is for streams to send their ends.
		tick := time.NewTicker(max(period*9/10/time.Duration(len(streams)), time.Nanosecond))
		defer tick.Stop()
		for _, st := range streams {
			if st.ending() != "" {
				continue
			}
			st.interrupt(EndDrain)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
	left := make(chan struct{})
	go func() {
		s.active.Wait()
		close(left)
	}()
	select {
	case <-left:
	case <-ctx.Done():
	}
}

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
