package serve

import (
	"io"

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
		logCut(b.server.log, reasonOf(err), zap.String("verb", "list"), zap.String("resource", b.resource),
			zap.String("client", b.client), zap.Int64("bytes", n)) {
		b.server.metrics.cut.WithLabelValues(b.resource, string(reasonOf(err))).Inc()
	}
	return n, err
}

// Close implements io.Closer.
func (b *notedBody) Close() error { return closeBody(b.WriterTo) }

// cutWords are what is logged of an answer that was cut since its client did not take it, by the reason.
var cutWords = map[EndReason]string{
	EndSlow:    "ended an answer whose client was too slow while memory was short",
	EndCrowded: "ended an answer whose client was too slow while others waited for room",
	EndStalled: "evicted a client that stopped reading",
}

// logCut logs that an answer was cut since its client did not take it. It reports false for any other reason.
func logCut(log *zap.Logger, reason EndReason, fields ...zap.Field) bool {
	words, cut := cutWords[reason]
	if cut {
		log.Warn(words, append(fields, zap.String("reason", string(reason)))...)
	}
	return cut
}
