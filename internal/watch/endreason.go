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
// A new reason is a constant, a row of endTable and an entry in the list of design D10, which a
// test compares. If an error of a cursor or a connection has it, ReasonOf says so.
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
	// The API server does not serve the resource any more, or not to the proxy (W-116).
	EndResourceNotServed EndReason = "resource_not_served"
	// An event cannot be encoded for the client: an end before that event (W-235).
	EndEncodingFailed EndReason = "encoding_failed"
	// The events from before the history did not arrive in time. The client can resume (W-113).
	EndBackfillFailed EndReason = "backfill_failed"
	// Memory is short, and the watch has an expensive selector. The client can resume (W-113).
	EndMemoryPressure EndReason = "memory_pressure"

	// Permission is lost: the end is clean if the client reads it at once. Its next request gets
	// the API server's answer (package reauth).
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

// endRow is what follows from a reason.
type endRow struct {
	reason EndReason
	// clean: the stream ends with its terminator, so that the connection can carry another request
	// (W-2).
	clean bool
	// revoked: the client is not allowed to receive anything any more. These are reauth.Ends.
	revoked bool
	// evicted is the log message of an eviction: a watch or a LIST that ended because its client read
	// too slowly. The names of these reasons begin with slow_client_, by which dashboards and the
	// status page count them.
	evicted string
	// status is the ERROR event that the client gets; nil: none.
	status func(cause error) *metav1.Status
}

var endTable = []endRow{
	{reason: EndTimeout, clean: true},
	{reason: EndDrain, clean: true},
	{reason: EndResourceVersionExpired, clean: true, status: expiredStatus},
	{reason: EndResourceVersionTooLarge, clean: true, status: apistatus.Of},
	{reason: EndResourceNotServed, clean: true},
	{reason: EndEncodingFailed, clean: true},
	{reason: EndBackfillFailed, clean: true},
	{reason: EndMemoryPressure, clean: true},
	{reason: EndCredentialExpired, clean: true, revoked: true},
	{reason: EndUnauthenticated, clean: true, revoked: true},
	{reason: EndForbidden, clean: true, revoked: true},
	{reason: EndReviewTimeout, clean: true, revoked: true},
	{reason: EndSlowClientStalled, evicted: "evicted a slow client: it stopped reading"},
	{reason: EndSlowClientMemory, evicted: "evicted a slow client: memory is short"},
	{reason: EndSlowClientQuota, evicted: "evicted a slow client: others wait for --max-list-bytes-in-flight"},
	{reason: EndClientClosed},
	{reason: EndAborted},
}

// EndReasons are all of them, so that each is a metric from the start.
var EndReasons = func() (all []EndReason) {
	for _, row := range endTable {
		all = append(all, row.reason)
	}
	return all
}()

// row is what follows from the reason. No reason is clean.
func (r EndReason) row() endRow {
	for _, row := range endTable {
		if row.reason == r {
			return row
		}
	}
	return endRow{clean: true}
}

// Clean reports that the stream ends with its terminator (W-2).
func (r EndReason) Clean() bool { return r.row().clean }

// EvictionMessage is the log message of the eviction of a slow client; empty for any other end.
func (r EndReason) EvictionMessage() string { return r.row().evicted }

// isRevoked reports that the client is not allowed to receive anything any more.
func (r EndReason) isRevoked() bool { return r != "" && r.row().revoked }

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

// LogEviction logs the eviction of a slow client. It reports false for any other reason.
func LogEviction(log *zap.Logger, reason EndReason, fields ...zap.Field) bool {
	message := reason.EvictionMessage()
	if message != "" {
		log.Warn(message, append(fields, zap.String("reason", string(reason)))...)
	}
	return message != ""
}

// expiredStatus is the ERROR event of a resourceVersion that is too old (W-107).
func expiredStatus(cause error) *metav1.Status {
	var e *cache.ExpiredError
	message := "too old resource version"
	if errors.As(cause, &e) {
		message = e.Error()
	}
	return apistatus.New(http.StatusGone, metav1.StatusReasonExpired, message, nil)
}
