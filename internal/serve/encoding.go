package serve

import (
	"go.uber.org/zap"

	"spillway/internal/plan"
)

// withdraw notes that an answer could not be made in the plan's encoding: from now on upstream
// makes it. Nothing was left out: a watch ended before the event, a LIST or GET was not begun.
func (s *Server) withdraw(p plan.Plan, cause error) {
	resource, encoding := p.Source.Resource().Info.String(), plan.EncodingName(p.Encoding)
	s.metrics.unencodable.WithLabelValues(resource, encoding).Inc()
	if p.Source.Codec.Withdraw(p.Encoding.Format, p.Encoding.View) {
		s.log.Warn("cannot encode what upstream sends; such requests pass through from now on",
			zap.String("resource", resource), zap.String("encoding", encoding), zap.Error(cause))
	}
}
