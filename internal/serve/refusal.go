package serve

import (
	"errors"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refuse plans the refusal of a request in upstream's words.
func refuse(s *Source, err error) Plan {
	return Plan{Action: Refuse, Source: s, Status: statusOf(err)}
}

// refuseEarly plans the refusal of a request before upstream looks at the resource, so that nothing is said of that (W-4).
func refuseEarly(s *Source, err error) Plan {
	p := refuse(s, err)
	p.Early = true
	return p
}

// refused answers with upstream's words for an error, or reports false if only upstream has them.
func (s *Server) refused(w responder, p Plan, err error) bool {
	var known apierrors.APIStatus
	if p.Source.Resource().Retired() || !errors.As(err, &known) {
		return false
	}
	s.refuse(w, p, statusOf(err))
	return true
}

// refuse answers with a Status.
func (s *Server) refuse(w responder, p Plan, status *metav1.Status) {
	s.metrics.refused.WithLabelValues(p.Source.Resource().Info.String(), strconv.Itoa(int(status.Code))).Inc()
	if !p.Early {
		p.headers(w.header)
	}
	writeFailure(w, p.Failure, status)
}
