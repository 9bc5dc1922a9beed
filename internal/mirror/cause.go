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

// causeOf tells why a mirror has failed from what it failed with.
func causeOf(err error) states.Cause {
	c := states.Cause{Why: states.WhyUnreachable, Text: status.OneLine(err.Error())}
	var status apierrors.APIStatus
	var refusal *discovery.NotMirroredError
	switch {
	case errors.As(err, &refusal):
		c.Why = states.WhyUncacheable
	case errors.Is(err, wire.ErrUncacheable):
		c.Why = states.WhyMalformed
	case !errors.As(err, &status):
		if !upstream.IsAway(err) {
			c.Why = states.WhyRefused // an answer that makes no sense
		}
	default:
		c.Why = causeOfStatus(err, status.Status())
	}
	return c
}

func causeOfStatus(err error, status metav1.Status) states.Why {
	// What is no Status comes from a filter of the apiserver that knows no resource, or from what
	// stands before it.
	foreign := apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	switch {
	case status.Code == http.StatusTooManyRequests && foreign:
		return states.WhyOverloaded
	case status.Code >= http.StatusInternalServerError && foreign:
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

// lastAnswer is why a resource is refused once an attempt has failed: upstream's last words about
// it. An upstream that does not answer says nothing of it.
func lastAnswer(before, now states.Cause) states.Cause {
	if now.Why == states.WhyUnreachable && before.Why != states.WhyNone {
		return before
	}
	return now
}

// missingRole is the remedy for a denial: the rule that Spillway's role lacks. The group is the one
// that upstream serves the resource in, which --resources need not name.
func missingRole(r schema.GroupResource) string {
	return fmt.Sprintf("; give Spillway a ClusterRole with apiGroups [%q], resources [%q], verbs [get, list, watch]",
		r.Group, r.Resource)
}
