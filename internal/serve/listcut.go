package serve

import (
	"io"

	"spillway/internal/apistatus"
	"spillway/internal/watch"

	"go.uber.org/zap"
)

// notedBody is the body of a LIST, which is logged and counted if it is cut since its client does
// not take it. That a client leaves is its own affair.
type notedBody struct {
	io.WriterTo
	server   *Server
	resource string
	client   string
}

// WriteTo implements io.WriterTo.
func (b *notedBody) WriteTo(w io.Writer) (int64, error) {
	n, err := b.WriterTo.WriteTo(w)
	if err != nil &&
		watch.LogEviction(b.server.log, watch.ReasonOf(err), zap.String("verb", "list"), zap.String("resource", b.resource),
			zap.String("client", b.client), zap.Int64("bytes", n)) {
		b.server.metrics.cut.WithLabelValues(b.resource, string(watch.ReasonOf(err))).Inc()
	}
	return n, err
}

// Close implements io.Closer.
func (b *notedBody) Close() error { return apistatus.CloseBody(b.WriterTo) }
