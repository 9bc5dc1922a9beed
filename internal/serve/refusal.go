package serve

import (
	"errors"
	"net/http"
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
	var large *tooLargeError
	if p.Source.Resource().Retired() || !errors.As(err, &known) && !errors.As(err, &large) {
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

// statusOf is what upstream answers for an error of its own code: the Status that the error brings, or else a 500 that gives
// no reason (W-27, W-170).
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	var large *tooLargeError
	switch {
	case errors.As(err, &large):
		return statusTooLarge(large)
	case !errors.As(err, &known):
		return newStatus(http.StatusInternalServerError, "", err.Error(), nil)
	}
	s := known.Status()
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &s
}

// statusTooLarge is W-68 and W-106.
func statusTooLarge(e *tooLargeError) *metav1.Status {
	return newStatus(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Timeout: "+e.Error(), &metav1.StatusDetails{
		Causes:            []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}},
		RetryAfterSeconds: 1,
	})
}
