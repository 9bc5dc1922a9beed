// Package states knows how the mirror of one resource stands: in exactly one State at a time, for
// one reason, since one moment.
//
// The states and the transitions between them are drawn in docs/design/mirror-states.md.
package states

import "time"

// Kind names a State. The values are those of the label "state" of metrics.
type Kind string

// All kinds of State.
const (
	// KindStarting: the first complete state has not arrived. Requests wait for it, or pass through
	// once an attempt has failed.
	KindStarting Kind = "starting"
	// KindSynced: a watch keeps the state current.
	KindSynced Kind = "synced"
	// KindResuming: the watch ended, and the next one has not begun. The state is served, with its age
	// once that is more than a moment.
	KindResuming Kind = "resuming"
	// KindRefused: the API server answers, and not with this resource. Requests pass through, until an
	// attempt succeeds.
	KindRefused Kind = "refused"
	// KindFallingBack: a watch-list never ended its initial events. A LIST and a WATCH take its place.
	KindFallingBack Kind = "falling_back"
	// KindGivenUp: the mirror has ended. Requests pass through.
	KindGivenUp Kind = "given_up"
)

// Kinds are all kinds of State, in the order in which a mirror may take them.
func Kinds() []Kind {
	return []Kind{KindStarting, KindSynced, KindResuming, KindRefused, KindFallingBack, KindGivenUp}
}

// Why is the kind of a cause: a value of the label "cause" of metrics; empty if nothing is wrong.
type Why string

// All kinds of cause.
const (
	WhyNone        Why = ""            // nothing is out of order
	WhyUnreachable Why = "unreachable" // the API server does not answer
	// The API server or something on the way ended a watch before its time.
	WhyWatchEnded Why = "watch_ended"
	// A watch was open, sent nothing, and the mirror could not be proven current.
	WhyWatchStalled Why = "watch_stalled"
	WhyOverloaded   Why = "overloaded"  // the API server answers 429
	WhyRefused      Why = "refused"     // the API server answers with an error for this resource
	WhyForbidden    Why = "forbidden"   // the proxy may not list and watch it
	WhyNotServed    Why = "not_served"  // the API server does not know the resource
	WhyUncacheable  Why = "uncacheable" // it is of a kind that is never mirrored
	WhyMalformed    Why = "malformed"   // an answer or event of the API server cannot be decoded
	// The bookmark that ends the initial events of a watch-list does not arrive.
	WhyNoInitialEventsEnd Why = "no_initial_events_end"
	WhyRelist             Why = "relist"           // the proxy requested the complete state again
	WhyResourceChanged    Why = "resource_changed" // the definition of the resource has changed
	WhyIdle               Why = "idle"             // no client requests it
	WhyMemoryPressure     Why = "memory_pressure"  // memory is short
)

// Cause is why a mirror is in its state.
type Cause struct {
	Why Why
	// Text says it in one line, mostly in the API server's words.
	Text string
}

// State is how a mirror stands at a moment. Only a Machine makes one, and gives it no more than its
// kind has: a synced mirror has no next attempt, nor has one that was given up.
type State struct {
	kind  Kind
	since time.Time
	cause Cause
	next  time.Time
	holds bool
}

// Kind names it.
func (s State) Kind() Kind { return s.kind }

// Since is when this kind of state began.
func (s State) Since() time.Time { return s.since }

// Cause is why the mirror is in this state; the zero Cause needs no explanation. That of a synced
// mirror is why it follows another way than usual.
func (s State) Cause() Cause { return s.cause }

// Next is when the next attempt is at the latest; zero: no attempt is due, or it is under way.
func (s State) Next() time.Time { return s.next }

// Holds reports that there is a complete state, however old.
func (s State) Holds() bool { return s.holds }
