package reauth

import (
	"time"

	"spillway/internal/auth"
	"spillway/internal/timerheap"
)

// check is a periodic review by the API server: whether a credential is valid, or whether an
// identity may do something. It belongs to a reviewSchedule, and to all watches that depend on it.
type check struct {
	timerheap.Node // among the schedule's deadlines, while a watch depends on the check

	// Static after construction.
	kind       kind
	key        auth.Digest
	sweep      time.Duration    // how often the API server reviews it
	credential *auth.Credential // ofCredential only
	what       auth.Attributes  // ofPermission only

	// What is known, owned by the schedule.
	who           *auth.Identity // that the credential proves, or that has the permission
	confirmed     time.Time      // when the last review that agreed was sent
	credentialEnd time.Time      // of a certificate, by the monotonic clock; zero: a token, or a permission
	permits       map[*Lease]struct{}
	isHeld        bool // its streams are paused, because the last review is too old

	// The next review, owned by the schedule.
	state       state
	nextReview  time.Time  // when to send it
	plannedFrom time.Time  // the confirmed that nextReview was planned from
	urgent      bool       // what was known before must not count any more
	mustRepeat  bool       // it became urgent while a review was under way
	failures    int        // of reviews, since the API server last answered
	due         time.Time  // its wake, as of the last reschedule
	queue       *userQueue // while it is due or under way
}

type kind string

const (
	ofCredential kind = "credential"
	ofPermission kind = "permission"
)

type state int

const (
	idle     state = iota
	ready          // its turn comes as soon as one is free
	underway       // it is under way
)

// validUntil is the end of the time for which the last review that agreed is valid.
func (c *check) validUntil() time.Time { return c.confirmed.Add(c.sweep + grace) }

// certificateEnd is when a certificate ends, by the wall clock. It is zero for a token, because the
// API server decides when a token ends, and for a permission.
func (c *check) certificateEnd() time.Time {
	if c.kind == ofCredential && c.credential.IsCertificate() {
		return c.credential.Expires()
	}
	return time.Time{}
}

// hasEnded reports that a certificate has ended: by the wall clock, or by the time that it had left
// when the check began. So a wall clock that is set back does not prolong it.
func (c *check) hasEnded(now time.Time) bool {
	return !c.credentialEnd.IsZero() && (!now.Before(c.credentialEnd) || !now.Before(c.certificateEnd()))
}

// mustReviewAtEnd reports that a token has reached its end since its last review.
func (c *check) mustReviewAtEnd(now time.Time) bool {
	if c.kind != ofCredential {
		return false
	}
	end := c.credential.Expires()
	return !end.IsZero() && c.confirmed.Before(end) && !now.Before(end)
}

// plan sets when to send the next review: at the end of a token at the latest.
func (c *check) plan(next time.Time) {
	c.nextReview, c.plannedFrom = next, c.confirmed
	if c.kind != ofCredential {
		return
	}
	if end := c.credential.Expires(); c.confirmed.Before(end) && end.Before(next) {
		c.nextReview = auth.MonotonicEnd(end, next)
	}
}

// wake is when there is something to be done about the check.
func (c *check) wake(holdMost time.Duration) time.Time {
	at := c.validUntil()
	if c.isHeld {
		at = at.Add(holdMost)
	}
	if c.state == idle && c.nextReview.Before(at) {
		at = c.nextReview
	}
	if !c.credentialEnd.IsZero() && c.credentialEnd.Before(at) {
		at = c.credentialEnd
	}
	return at
}

// DueBefore implements timerheap.Element.
func (c *check) DueBefore(other *check) bool { return c.due.Before(other.due) }

// End is why a watch may not go on.
type End string

// The reasons, which are also the labels of metrics.
const (
	EndCredentialExpired End = "credential_expired" // #nosec G101 -- by its own words
	EndUnauthenticated   End = "unauthenticated"    // the API server refuses the token; an untrusted certificate
	EndForbidden         End = "forbidden"          // the API server allows it no more
	EndReviewTimeout     End = "review_timeout"     // the API server did not answer for too long
)

// Ends are all of them, so that each is a metric from the start.
var Ends = []End{EndCredentialExpired, EndUnauthenticated, EndForbidden, EndReviewTimeout}

// ReviewedStream is a running watch as the Reauthorizer knows it. Its methods are called one at a
// time, in the order in which things happened, and must not block. What was under way when a Lease
// was released may still arrive.
type ReviewedStream interface {
	// Pause keeps the stream from sending anything: what allows it is too old, and the API server did
	// not answer. It stays open, so that an API server that is unreachable for a while costs no client
	// a new list.
	Pause()
	// Resume ends Pause: the API server said that it still may.
	Resume()
	// End ends it. Nothing more is called.
	End(End)
}

// Lease is what a running watch goes on by. Release it when the watch is over.
type Lease struct {
	owner  *Reauthorizer
	stream ReviewedStream

	// Guarded by owner.mu.
	credential, permission *check
	holds                  int // how many of the two are held
	over                   bool
}
