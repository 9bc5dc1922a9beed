package auth

import "time"

// check is something that is asked again and again: whether a credential is good, or whether somebody may do something. It belongs to a
// rota, and to all watches that run by it.
type check struct {
	// Static after construction.
	kind       kind
	key        digest
	sweep      time.Duration // how often it is asked
	credential *Credential   // of a credential
	what       Attributes    // of a permission

	// The rota's.
	who       *Identity // whom the credential proves, or who may
	permits   map[*Permit]struct{}
	ends      time.Time // when the credential ends, by the clock that runs; zero: by its own words it does not
	confirmed time.Time // when upstream was asked and agreed, last
	next      time.Time // when to ask again
	planned   time.Time // what confirmed was when next was set
	state     state
	urgent    bool // what was known before must not count any more
	again     bool // it became urgent while it was being asked
	failures  int  // to ask, since upstream last answered
	held      bool
	due       time.Time  // its wake, when the agenda last looked
	place     int        // in the agenda; -1: in none, no watch depends on it
	queue     *userQueue // while it is due or under way
}

type kind string

const (
	ofCredential kind = "credential"
	ofPermission kind = "permission"
)

type state int

const (
	idle   state = iota
	ready        // its turn comes as soon as one is free
	asking       // it is under way
)

// limit is until when what is known counts.
func (c *check) limit() time.Time { return c.confirmed.Add(c.sweep + grace) }

// expiry is when the credential ends for good; zero: by its own words it does not.
func (c *check) expiry() time.Time {
	if c.kind == ofCredential && c.credential.token.empty() {
		return c.credential.expires
	}
	return time.Time{}
}

// over reports that the credential has ended for good: by the wall clock, or by the time that it
// had left when the check began, so that a wall clock that is set back does not prolong it.
func (c *check) over(now time.Time) bool {
	return !c.ends.IsZero() && (!now.Before(c.ends) || !now.Before(c.expiry()))
}

// overtaken reports that a token has reached its end since upstream was asked about it.
func (c *check) overtaken(now time.Time) bool {
	if c.kind != ofCredential {
		return false
	}
	end := c.credential.expires
	return !end.IsZero() && c.confirmed.Before(end) && !now.Before(end)
}

// plan sets when to ask again, or earlier: a token that reaches its end is asked about then.
func (c *check) plan(next time.Time) {
	c.next, c.planned = next, c.confirmed
	if c.kind != ofCredential {
		return
	}
	if end := c.credential.expires; c.confirmed.Before(end) && end.Before(next) {
		c.next = moment(end, next)
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

// moment is an end that a credential tells, by the wall clock, as the clock has it that near was read from: who waits for it must not wait for hours
// longer since the wall clock was set back.
func moment(end, near time.Time) time.Time { return near.Add(end.Sub(near)) }

// leastStep is by how much a wall clock is set back at least that counts as set back: the two clocks of a host drift
// apart by less.
const leastStep = time.Second

// setBackSince reports that the wall clock was set back since a moment, and what it would show now
// if it had not been. An end that a credential tells has come when either has reached it: a
// credential that was over does not become good again.
func setBackSince(began, now time.Time) (otherwise time.Time, back bool) {
	otherwise = began.Round(0).Add(now.Sub(began))
	return otherwise, otherwise.Sub(now.Round(0)) >= leastStep
}

// agenda is a heap of checks by when there is something to be done about them (container/heap). Whoever changes a check has it looked at.
type agenda []*check

// first is the check that is due next; nil: there are none.
func (a agenda) first() *check {
	if len(a) == 0 {
		return nil
	}
	return a[0]
}

// Len implements heap.Interface.
func (a agenda) Len() int { return len(a) }

// Less implements heap.Interface.
func (a agenda) Less(i, j int) bool { return a[i].due.Before(a[j].due) }

// Swap implements heap.Interface.
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}

// Push implements heap.Interface.
func (a *agenda) Push(x any) {
	c := x.(*check)
	c.place = len(*a)
	*a = append(*a, c)
}

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	c := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	c.place = -1
	return c
}
