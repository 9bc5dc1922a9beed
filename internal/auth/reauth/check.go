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
	credential *auth.Credential // of a credential
	what       auth.Attributes  // of a permission

	// The schedule's.
	who       *auth.Identity // that the credential proves, or that has the permission
	permits   map[*Lease]struct{}
	ends      time.Time // when the credential ends, by the monotonic clock; zero: by its own words it does not
	confirmed time.Time // when the last review that agreed was sent
	next      time.Time // when to send the next review
	planned   time.Time // what confirmed was when next was set
	state     state
	urgent    bool // what was known before must not count any more
	again     bool // it became urgent while a review was under way
	failures  int  // of reviews, since the API server last answered
	held      bool
	due       time.Time  // its wake, as of the last reschedule
	queue     *userQueue // while it is due or under way
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

// limit is until when what is known counts.
func (c *check) limit() time.Time { return c.confirmed.Add(c.sweep + grace) }

// expiry is when the credential ends for good; zero: by its own words it does not.
func (c *check) expiry() time.Time {
	if c.kind == ofCredential && c.credential.IsCertificate() {
		return c.credential.Expires()
	}
	return time.Time{}
}

// over reports that the credential has ended for good: by the wall clock, or by the time that it
// had left when the check began, so that a wall clock that is set back does not prolong it.
func (c *check) over(now time.Time) bool {
	return !c.ends.IsZero() && (!now.Before(c.ends) || !now.Before(c.expiry()))
}

// overtaken reports that a token has reached its end since its last review.
func (c *check) overtaken(now time.Time) bool {
	if c.kind != ofCredential {
		return false
	}
	end := c.credential.Expires()
	return !end.IsZero() && c.confirmed.Before(end) && !now.Before(end)
}

// plan sets when to send the next review: at the end of a token at the latest.
func (c *check) plan(next time.Time) {
	c.next, c.planned = next, c.confirmed
	if c.kind != ofCredential {
		return
	}
	if end := c.credential.Expires(); c.confirmed.Before(end) && end.Before(next) {
		c.next = auth.MonotonicEnd(end, next)
	}
}

// wake is when there is something to be done about the check.
func (c *check) wake(holdMost time.Duration) time.Time {
	at := c.limit()
	if c.held {
		at = at.Add(holdMost)
	}
	if c.state == idle && c.next.Before(at) {
		at = c.next
	}
	if !c.ends.IsZero() && c.ends.Before(at) {
		at = c.ends
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
