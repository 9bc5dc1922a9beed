package serve

import (
	"errors"
	"strconv"

	"spillway/internal/apistatus"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refused answers with upstream's words for an error, or reports false if only upstream has them.
func (s *Server) refused(w apistatus.Responder, p answering, err error) bool {
	var known apierrors.APIStatus
	if p.Source.Resource().Retired() || !errors.As(err, &known) {
		return false
	}
	s.refuse(w, p, apistatus.Of(err))
	return true
}

// refuse answers with a Status.
func (s *Server) refuse(w apistatus.Responder, p answering, status *metav1.Status) {
	s.metrics.refused.WithLabelValues(p.Source.Resource().Info.String(), strconv.Itoa(int(status.Code))).Inc()
	if !p.Early {
		p.headers(w.SetHeader)
	}
	apistatus.WriteAs(w, p.Failure, status)
}
