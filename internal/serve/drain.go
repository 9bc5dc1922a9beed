package serve

import (
	"context"
	"time"
)

// Drain ends the streams one by one, spread over about the period, each right after a bookmark, so
// that clients reconnect with a fresh resourceVersion and not all at once (design D14). New watches
// are refused from now on, and each HTTP/2 connection gets a GOAWAY at once, so that its client
// opens another one for its next request. It returns when no stream is left, or when ctx ends.
func (s *Server) Drain(ctx context.Context, period time.Duration) {
	s.watches.RefuseNew()
	s.http2.goAway()
	s.watches.Drain(ctx, period)
}
