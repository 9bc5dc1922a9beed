package watch

import (
	"errors"

	"go.uber.org/zap"

	"spillway/internal/auth/reauth"
	"spillway/internal/backfill"
	"spillway/internal/cache"
	"spillway/internal/clientconn"
	"spillway/internal/fanout"
	"spillway/internal/source"
)

// EndReason is why a watch ended. Every stream ends for exactly one, which is the metric label, the
// log field and what the client learns (design D10).
type EndReason string

// The reasons, and what the client sees of them.
const (
	EndTimeout   EndReason = "timeout"   // the watch's own deadline: a clean end (W-112)
	EndDrain     EndReason = "drain"     // this proxy is going away: a clean end
	EndExpired   EndReason = "expired"   // the log moved past the cursor: ERROR 410 (W-107)
	EndTooLarge  EndReason = "too_large" // the resourceVersion did not come in time: ERROR 504 (W-106)
	EndRetracted EndReason = "retracted" // an initial object went away: a clean end, before the end bookmark (W-215)
	// the state could not be proven fresh: a clean end, before the end bookmark (W-216)
	EndUnproven EndReason = "unproven"
	EndRetired  EndReason = "retired" // upstream serves the resource no more, or not to us: a clean end (W-116)
	// an event could not be made in the client's encoding: a clean end before it (W-235)
	EndUnencodable EndReason = "unencodable"
	// what happened before the log begins could not be told in time: a clean end, to go on from
	// (W-113)
	EndUnfilled EndReason = "unfilled"
	// memory is short, and its selector takes much: a clean end, to go on from (W-113)
	EndShed EndReason = "shed"
	// The client may not go on: a clean end, if it takes that at once, and its next request tells it
	// more (package auth).
	EndCredential      = EndReason(reauth.EndExpired)         // its credential reached its end
	EndUnauthenticated = EndReason(reauth.EndUnauthenticated) // upstream takes its credential no more
	EndForbidden       = EndReason(reauth.EndForbidden)       // upstream allows it no more
	EndUnconfirmed     = EndReason(reauth.EndUnconfirmed)     // upstream could not be asked for too long

	EndSlow EndReason = "slow" // the client was too slow for its initial events while memory was short: as stalled
	// the client was too slow for its initial events while others waited for room for theirs: as
	// stalled
	EndCrowded  EndReason = "crowded"
	EndStalled  EndReason = "stalled"  // the client stopped reading: evicted, its connection or HTTP/2 stream is reset
	EndDeparted EndReason = "departed" // the client closed its connection or cancelled its HTTP/2 stream
	// writing to the client failed, it was held in the middle of a seam until its time was over, or
	// this proxy was told to stop at once
	EndAborted EndReason = "aborted"
)

// EndReasons are all of them, so that each is a metric from the start.
var EndReasons = []EndReason{
	EndTimeout, EndDrain, EndExpired, EndTooLarge, EndRetracted, EndUnproven, EndRetired, EndUnencodable, EndUnfilled,
	EndShed,
	EndCredential, EndUnauthenticated, EndForbidden, EndUnconfirmed, EndSlow, EndCrowded, EndStalled, EndDeparted,
	EndAborted,
}

// Clean reports that the stream ends with its terminator, so that the connection can carry another
// request (W-2).
func (r EndReason) Clean() bool {
	switch r {
	case EndSlow, EndCrowded, EndStalled, EndDeparted, EndAborted:
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
		return EndSlow
	case errors.Is(err, clientconn.ErrCrowded):
		return EndCrowded
	case errors.As(err, &expired):
		return EndExpired
	case errors.As(err, &large):
		return EndTooLarge
	case errors.Is(err, fanout.ErrRetracted):
		return EndRetracted
	case errors.Is(err, fanout.ErrUnencodable):
		return EndUnencodable
	case errors.Is(err, backfill.ErrBusy), errors.Is(err, backfill.ErrBehind):
		return EndUnfilled
	case errors.Is(err, clientconn.ErrStalled):
		return EndStalled
	}
	return EndAborted
}

// CutMessages are what is logged of an answer that was cut since its client did not take it, by the
// reason.
var CutMessages = map[EndReason]string{
	EndSlow:    "ended an answer whose client was too slow while memory was short",
	EndCrowded: "ended an answer whose client was too slow while others waited for room",
	EndStalled: "evicted a client that stopped reading",
}

// LogCut logs that an answer was cut since its client did not take it. It reports false for any
// other reason.
func LogCut(log *zap.Logger, reason EndReason, fields ...zap.Field) bool {
	words, cut := CutMessages[reason]
	if cut {
		log.Warn(words, append(fields, zap.String("reason", string(reason)))...)
	}
	return cut
}
