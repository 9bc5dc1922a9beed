package watch

import (
	"errors"
	"net/http"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/auth/reauth"
	"spillway/internal/backfill"
	"spillway/internal/cache"
	"spillway/internal/clientconn"
	"spillway/internal/fanout"
	"spillway/internal/source"
)

// EndReason is why a watch ended. Every stream ends for exactly one, which is the label of the
// metric spillway_watch_terminations_total, the log field, and decides what the client sees (design
// D10).
//
// A new reason is added to its block of constants, clean or broken, and to:
//   - EndReasons, and the list in design D10, in the same order;
//   - Clean, if it is a broken end;
//   - EvictionMessages, if it is the eviction of a slow client: its name then begins with
//     slow_client_, by which dashboards and the status page count it;
//   - revoked and reauth.Ends, if the client lost its permission;
//   - ReasonOf, if an error of a cursor or a connection has it;
//   - errorStatus, if the client gets an ERROR event;
//   - the help text of spillway_evicted_lists_total, if a LIST may end for it, too;
//   - docs/failure-modes.md.
//
// Stream.endReasonOf and Stream.lastFrames may put another reason in place of one.
type EndReason string

// Clean ends: the client gets the terminator of the body, and its connection stays open.
const (
	EndTimeout EndReason = "timeout" // the watch's own deadline (W-112)
	EndDrain   EndReason = "drain"   // the proxy drains before it stops
	// The history no longer reaches back to the cursor: ERROR 410 (W-107).
	EndResourceVersionExpired EndReason = "resource_version_expired"
	// The requested resourceVersion did not arrive in time, and upstream confirmed that it does not
	// exist: ERROR 504 (W-106).
	EndResourceVersionTooLarge EndReason = "resource_version_too_large"
	// The apiserver does not serve the resource any more, or not to the proxy (W-116).
	EndResourceNotServed EndReason = "resource_not_served"
	// An event cannot be encoded for the client: an end before that event (W-235).
	EndEncodingFailed EndReason = "encoding_failed"
	// The events from before the history did not arrive in time. The client can resume (W-113).
	EndBackfillFailed EndReason = "backfill_failed"
	// Memory is short, and the watch has an expensive selector. The client can resume (W-113).
	EndMemoryPressure EndReason = "memory_pressure"

	// Permission is lost: the end is clean if the client reads it at once. Its next request gets
	// the apiserver's answer (package reauth).
	EndCredentialExpired = EndReason(reauth.EndCredentialExpired)
	EndUnauthenticated   = EndReason(reauth.EndUnauthenticated)
	EndForbidden         = EndReason(reauth.EndForbidden)
	EndReviewTimeout     = EndReason(reauth.EndReviewTimeout)
)

// Evictions of slow clients, and other broken ends: the connection or the HTTP/2 stream is reset.
const (
	// The client took nothing for --stall-timeout, or for 2 s while memory was short
	// (clientconn.EvictionPolicy.StallTimeout).
	EndSlowClientStalled EndReason = "slow_client_stalled"
	// The client read its initial events too slowly while memory was short.
	EndSlowClientMemory EndReason = "slow_client_memory_pressure"
	// The client read its initial events too slowly while others waited for
	// --max-list-bytes-in-flight.
	EndSlowClientQuota EndReason = "slow_client_quota"

	// The client closed its connection or cancelled its HTTP/2 stream.
	EndClientClosed EndReason = "client_closed"
	// A write to the client failed, its deadline passed while it was paused in the middle of a
	// seam, or the proxy stopped without a drain.
	EndAborted EndReason = "aborted"
)

// EndReasons are all of them, so that each is a metric from the start.
var EndReasons = []EndReason{
	EndTimeout, EndDrain, EndResourceVersionExpired, EndResourceVersionTooLarge,
	EndResourceNotServed, EndEncodingFailed, EndBackfillFailed, EndMemoryPressure,
	EndCredentialExpired, EndUnauthenticated, EndForbidden, EndReviewTimeout,
	EndSlowClientStalled, EndSlowClientMemory, EndSlowClientQuota, EndClientClosed, EndAborted,
}

// Clean reports that the stream ends with its terminator, so that the connection can carry another
// request (W-2).
func (r EndReason) Clean() bool {
	switch r {
	case EndSlowClientStalled, EndSlowClientMemory, EndSlowClientQuota, EndClientClosed, EndAborted:
		return false
	}
	return true
}

// ReasonOf is the reason behind an error of a cursor or a connection.
func ReasonOf(err error) EndReason {
	var expired *cache.ExpiredError
	var large *source.TooLargeError
	var end endError
	switch {
	case errors.As(err, &end):
		return EndReason(end)
	case errors.Is(err, clientconn.ErrSlow):
		return EndSlowClientMemory
	case errors.Is(err, clientconn.ErrCrowded):
		return EndSlowClientQuota
	case errors.As(err, &expired):
		return EndResourceVersionExpired
	case errors.As(err, &large):
		return EndResourceVersionTooLarge
	case errors.Is(err, fanout.ErrUnencodable):
		return EndEncodingFailed
	case errors.Is(err, backfill.ErrBusy), errors.Is(err, backfill.ErrBehind):
		return EndBackfillFailed
	case errors.Is(err, clientconn.ErrStalled):
		return EndSlowClientStalled
	}
	return EndAborted
}

// EvictionMessages are the log messages of evictions: a watch or a LIST that ended since its client
// read too slowly.
var EvictionMessages = map[EndReason]string{
	EndSlowClientStalled: "evicted a slow client: it stopped reading",
	EndSlowClientMemory:  "evicted a slow client: memory is short",
	EndSlowClientQuota:   "evicted a slow client: others wait for --max-list-bytes-in-flight",
}

// LogEviction logs the eviction of a slow client. It reports false for any other reason.
func LogEviction(log *zap.Logger, reason EndReason, fields ...zap.Field) bool {
	message, evicted := EvictionMessages[reason]
	if evicted {
		log.Warn(message, append(fields, zap.String("reason", string(reason)))...)
	}
	return evicted
}

// errorStatus is the ERROR event that the reason shows, nil for none.
func (r EndReason) errorStatus(cause error) *metav1.Status {
	switch r {
	case EndResourceVersionExpired:
		var e *cache.ExpiredError
		message := "too old resource version"
		if errors.As(cause, &e) {
			message = e.Error()
		}
		return apistatus.New(http.StatusGone, metav1.StatusReasonExpired, message, nil)
	case EndResourceVersionTooLarge:
		return apistatus.Of(cause)
	}
	return nil
}
