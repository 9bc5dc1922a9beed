package reauth

import (
	"time"

	"spillway/internal/auth"
	"spillway/internal/timerheap"
)

// reviewSchedule decides when to send each review, and pauses and ends streams. It has no clock, no
// goroutine and no lock: it takes the time and the results of reviews, and returns what to do. So a
// test runs days of it in a moment.
type reviewSchedule struct {
	scheduleOptions
	credentials, permissions map[auth.Digest]*check
	deadlines                timerheap.Heap[*check]
	queue                    fairQueue // of the checks that are due
	held                     int       // permits
	rechecked                time.Time
	pause                    time.Duration // after a failure to ask: twice as long after each, none after an answer
	paused                   time.Time     // no review is sent before
	pending                  dueWork
}

type scheduleOptions struct {
	sweep       time.Duration
	holdTimeout time.Duration
	maxChecks   int // checks under way
	random      func() float64
	key         func(*auth.Identity, auth.Attributes) auth.Digest
	// recall is when the API server last agreed, if that is known by other ways than a check's, and
	// which identity it then said a credential proves.
	recall func(*check) (at time.Time, who *auth.Identity, ok bool)
}

// dueWork is what to do: calls of streams, in order, and reviews to send, whose results
// handleResult takes. wake is when to call due again at the latest; zero: when something changes.
type dueWork struct {
	calls   []func()
	ended   []End
	reviews []*check
	wake    time.Time
}

// reviewResult is the result of a review.
type reviewResult struct {
	verdict auth.Verdict
	at      time.Time      // when the review was sent
	end     End            // if denied
	who     *auth.Identity // of a credential, if allowed: that it proves now
}

const (
	minPause         = 50 * time.Millisecond
	maxPause         = 2 * time.Second
	minRetryInterval = 250 * time.Millisecond // of one check
	maxRetryInterval = 4 * time.Second
)

func newReviewSchedule(o scheduleOptions) *reviewSchedule {
	return &reviewSchedule{
		scheduleOptions: o, credentials: map[auth.Digest]*check{}, permissions: map[auth.Digest]*check{},
		queue: fairQueue{users: map[string]*userQueue{}},
	}
}

// credentialSweep is how often a credential is reviewed: often enough that the API server's cache
// of tokens stays within the bound.
func credentialSweep(sweep time.Duration) time.Duration {
	return max(sweep-auth.UpstreamTokenTTL, sweep/2)
}

// admit adds a permit. What is known of its credential and its permission is as old as the
// questions.
func (r *reviewSchedule) admit(p *Lease, result auth.Result, what auth.Attributes, decided, now time.Time) {
	c := r.credentials[result.Credential.Key()]
	if c == nil {
		c = &check{
			kind: ofCredential, key: result.Credential.Key(), sweep: credentialSweep(r.sweep),
			credential: result.Credential, who: result.Identity,
		}
		r.add(c, result.At, now)
	} else if result.At.After(c.confirmed) {
		r.confirm(c, result.At, now)
		r.identify(c, result.Identity, now)
	}
	p.credential = c
	// The decision may be about an identity that the credential no longer proves.
	p.permission = r.permission(c.who, what, decided, now, c.who.Equal(result.Identity))
	r.join(p, p.credential)
	r.join(p, p.permission)
}

// permission is the check of whether an identity may do something, as was decided at the given
// time. If it is not sure that the decision was about this identity, it is reviewed at once, and
// until then the streams go on for as long as if it was.
func (r *reviewSchedule) permission(
	who *auth.Identity, what auth.Attributes, decided, now time.Time, sure bool,
) *check {
	key := r.key(who, what)
	c := r.permissions[key]
	switch {
	case c == nil:
		c = &check{kind: ofPermission, key: key, sweep: r.sweep, who: who, what: what}
		r.add(c, decided, now)
		if !sure {
			r.hasten(c, now)
		}
	case sure && decided.After(c.confirmed):
		r.confirm(c, decided, now)
	}
	return c
}

// add adds a check. Its first review is sent at a random moment of the time that is left, so that
// those of a herd are spread, and stay so.
func (r *reviewSchedule) add(c *check, at, now time.Time) {
	c.permits, c.confirmed = map[*Lease]struct{}{}, at
	if end := c.certificateEnd(); !end.IsZero() {
		c.credentialEnd = auth.MonotonicEnd(end, now)
	}
	c.isHeld = !now.Before(c.validUntil())
	c.plan(r.within(c, now))
	if at.Before(r.rechecked) {
		c.urgent, c.nextReview = true, now
	}
	r.of(c.kind)[c.key] = c
	r.reschedule(c)
}

// reschedule puts a check that is new or has changed where it belongs among the deadlines.
func (r *reviewSchedule) reschedule(c *check) {
	c.due = c.wake(r.holdTimeout)
	r.deadlines.Set(c)
}

// within is a random moment between now and when the next review is due.
func (r *reviewSchedule) within(c *check, now time.Time) time.Time {
	left := c.confirmed.Add(c.sweep).Sub(now)
	return now.Add(time.Duration((1 - r.random()) * float64(max(left, 0))))
}

func (r *reviewSchedule) of(k kind) map[auth.Digest]*check {
	if k == ofCredential {
		return r.credentials
	}
	return r.permissions
}

// confirm notes that a review that was sent at the given time agreed.
func (r *reviewSchedule) confirm(c *check, at, now time.Time) {
	c.confirmed = at
	if c.isHeld && now.Before(c.validUntil()) {
		c.isHeld = false
		for p := range c.permits {
			r.unhold(p)
		}
	}
	r.reschedule(c)
}

// identify notes the identity that a credential proves now. If that is another one than before, its
// streams need that identity's permission, which is reviewed at once; how long they may run without
// it does not change.
func (r *reviewSchedule) identify(c *check, who *auth.Identity, now time.Time) {
	if who == nil || who.Equal(c.who) {
		return
	}
	c.who = who
	for p := range c.permits {
		old := p.permission
		p.permission = r.permission(who, old.what, old.confirmed, now, false)
		r.join(p, p.permission)
		r.leave(p, old)
	}
}

// join makes a permit run by a check.
func (r *reviewSchedule) join(p *Lease, c *check) {
	c.permits[p] = struct{}{}
	if c.isHeld {
		r.hold(p)
	}
}

// leave makes a permit run by a check no more, which ends with its last permit.
func (r *reviewSchedule) leave(p *Lease, c *check) {
	delete(c.permits, p)
	if c.isHeld {
		r.unhold(p)
	}
	if len(c.permits) == 0 && c.InHeap() {
		r.deadlines.Remove(c)
		delete(r.of(c.kind), c.key)
	}
}

func (r *reviewSchedule) hold(p *Lease) {
	if p.holds++; p.holds == 1 {
		r.held++
		r.call(p.stream.Pause)
	}
}

func (r *reviewSchedule) unhold(p *Lease) {
	if p.holds--; p.holds == 0 {
		r.held--
		if !p.over {
			r.call(p.stream.Resume)
		}
	}
}

func (r *reviewSchedule) call(f func()) { r.pending.calls = append(r.pending.calls, f) }

// release forgets a permit.
func (r *reviewSchedule) release(p *Lease) {
	if p.over {
		return
	}
	p.over = true
	r.leave(p, p.credential)
	r.leave(p, p.permission)
}

// end ends all streams that run by a check.
func (r *reviewSchedule) end(c *check, why End) {
	for p := range c.permits {
		r.release(p)
		r.call(func() { p.stream.End(why) })
		r.pending.ended = append(r.pending.ended, why)
	}
}

// recheck makes the checks due that a change concerns. A watch that is admitted later by what was
// known before is checked at once, too, whatever the change concerned: that is rare, and costs one
// review.
func (r *reviewSchedule) recheck(concerns func(*auth.Identity, auth.Attributes) bool, now time.Time) {
	r.rechecked = now
	for _, c := range r.permissions {
		if !concerns(c.who, c.what) {
			continue
		}
		r.hasten(c, now)
		for p := range c.permits {
			r.hasten(p.credential, now)
		}
	}
}

func (r *reviewSchedule) hasten(c *check, now time.Time) {
	c.urgent = true
	switch c.state {
	case idle:
		c.nextReview = now
		r.reschedule(c)
	case underway:
		c.mustRepeat = true
	}
}

// due returns what is to be done now.
func (r *reviewSchedule) due(now time.Time) dueWork {
	for c := r.deadlines.First(); c != nil && !c.due.After(now); c = r.deadlines.First() {
		r.handleDue(c, now)
	}
	t := r.pending
	r.pending = dueWork{}
	resting := now.Before(r.paused)
	if !resting {
		for c := r.queue.next(r.maxChecks); c != nil; c = r.queue.next(r.maxChecks) {
			c.state = underway
			t.reviews = append(t.reviews, c)
		}
	}
	if c := r.deadlines.First(); c != nil {
		t.wake = c.due
	}
	if resting && len(r.queue.turns) > 0 && r.paused.Before(t.wake) {
		t.wake = r.paused
	}
	return t
}

// handleDue does what is due about a check.
func (r *reviewSchedule) handleDue(c *check, now time.Time) {
	switch {
	case c.hasEnded(now):
		r.end(c, EndCredentialExpired)
	case c.isHeld && !now.Before(c.validUntil().Add(r.holdTimeout)):
		r.end(c, EndReviewTimeout)
	case !c.isHeld && !now.Before(c.validUntil()):
		c.isHeld = true
		for p := range c.permits {
			r.hold(p)
		}
		r.reschedule(c)
	case !r.postpone(c, now):
		c.state = ready
		r.queue.push(c)
		r.reschedule(c)
	}
}

// postpone puts off a review that was sent for a request meanwhile, unless that leaves hardly any
// time.
func (r *reviewSchedule) postpone(c *check, now time.Time) bool {
	if c.urgent || c.mustReviewAtEnd(now) {
		return false
	}
	if at, who, ok := r.recall(c); ok && at.After(c.confirmed) {
		r.confirm(c, at, now)
		r.identify(c, who, now)
	}
	if !c.confirmed.After(c.plannedFrom) || c.confirmed.Add(c.sweep).Sub(now) < c.sweep/2 {
		return false
	}
	c.plan(r.within(c, now))
	r.reschedule(c)
	return true
}

// handleResult takes the result of a review that due returned.
func (r *reviewSchedule) handleResult(c *check, f reviewResult, now time.Time) {
	r.queue.done(c)
	if !c.InHeap() {
		return // no watch depends on it
	}
	c.state = idle
	stale := c.mustRepeat || f.verdict == auth.Denied && f.at.Before(c.confirmed)
	c.mustRepeat = false
	if f.verdict != auth.Unreviewed {
		r.pause, r.paused, c.failures = 0, time.Time{}, 0
	}
	switch {
	case f.verdict == auth.Unreviewed:
		r.fail(c, now)
	case stale: // asked before something that counts
		c.urgent, c.nextReview = true, now
	case f.verdict == auth.Denied:
	default:
		c.urgent = false
		if f.at.After(c.confirmed) {
			r.confirm(c, f.at, now)
		}
		c.plan(c.confirmed.Add(c.sweep))
		if earliest := now.Add(minRetryInterval); c.nextReview.Before(earliest) {
			c.nextReview = earliest // what was known here may be no younger than what was known before
		}
	}
	r.reschedule(c)
	switch {
	case f.verdict == auth.Denied && !stale:
		r.end(c, f.end)
	case f.verdict == auth.Allowed && !stale:
		r.identify(c, f.who, now)
	}
}

// fail plans a review that was not answered again, and backs off: while the API server is
// unreachable, few reviews are sent.
func (r *reviewSchedule) fail(c *check, now time.Time) {
	if !now.Before(r.paused) {
		r.pause = min(max(2*r.pause, minPause), maxPause)
		r.paused = now.Add(r.pause)
	}
	c.nextReview = now.Add(min(minRetryInterval<<min(c.failures, 8), maxRetryInterval))
	c.failures++
}
