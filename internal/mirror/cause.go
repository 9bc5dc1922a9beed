package mirror

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/mirror/states"
	"spillway/internal/status"
	"spillway/internal/upstream"
	"spillway/internal/upstream/discovery"
	"spillway/internal/upstream/wire"
)

// causeOf is why a mirror has failed, by the error with which it has.
func causeOf(err error) states.Cause {
	return states.Cause{Why: whyOf(err), Text: status.OneLine(err.Error())}
}

func whyOf(err error) states.Why {
	var answer apierrors.APIStatus
	switch {
	case errors.As(err, new(*discovery.NotMirroredError)):
		return states.WhyUncacheable
	case errors.Is(err, wire.ErrUncacheable):
		return states.WhyMalformed
	case errors.As(err, &answer):
		return whyOfStatus(err, answer.Status())
	case upstream.IsUnavailable(err):
		return states.WhyUnreachable
	}
	return states.WhyRefused // an answer that makes no sense
}

func whyOfStatus(err error, status metav1.Status) states.Why {
	// An answer that is no Status comes from a filter of the API server that knows no resource, or
	// from a proxy in front of it.
	isForeign := apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	switch {
	case status.Code == http.StatusTooManyRequests && isForeign:
		return states.WhyOverloaded
	case status.Code >= http.StatusInternalServerError && isForeign:
		return states.WhyUnreachable
	case status.Code == http.StatusForbidden, status.Code == http.StatusUnauthorized:
		return states.WhyForbidden
	case status.Code == http.StatusNotFound, status.Code == http.StatusMethodNotAllowed:
		return states.WhyNotServed
	case status.Code == http.StatusGone:
		return states.WhyRelist // the mirror's version is too old, and a complete state follows
	}
	return states.WhyRefused
}

// isNever reports that an error says that a resource is never mirrored, whatever changes upstream.
func isNever(err error) bool {
	var refusal *discovery.NotMirroredError
	return errors.As(err, &refusal) && refusal.IsPermanent
}

// causeAfter is why a resource is refused once another attempt has failed: upstream's last words
// about it. An upstream that does not answer says nothing of it.
func causeAfter(before, failure states.Cause) states.Cause {
	if failure.Why == states.WhyUnreachable && before.Why != states.WhyNone {
		return before
	}
	return failure
}

// missingRole is the remedy for a denial: the rule that Spillway's role lacks. The group is the one
// that upstream serves the resource in, which --resources need not name.
func missingRole(r schema.GroupResource) string {
	return fmt.Sprintf("; give Spillway a ClusterRole with apiGroups [%q], resources [%q], verbs [get, list, watch], "+
		"which the chart writes for each of its mirror.resources", r.Group, r.Resource)
}
