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
	// KindRefused: the apiserver answers, and not with this resource. Requests pass through, until an
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
	WhyUnreachable Why = "unreachable" // the apiserver does not answer
	// The apiserver or something on the way ended a watch before its time.
	WhyWatchEnded Why = "watch_ended"
	// A watch was open, sent nothing, and the mirror could not be proven current.
	WhyWatchStalled Why = "watch_stalled"
	WhyOverloaded   Why = "overloaded"  // the apiserver answers 429
	WhyRefused      Why = "refused"     // the apiserver answers with an error for this resource
	WhyForbidden    Why = "forbidden"   // the proxy may not list and watch it
	WhyNotServed    Why = "not_served"  // the apiserver does not know the resource
	WhyUncacheable  Why = "uncacheable" // it is of a kind that is never mirrored
	WhyMalformed    Why = "malformed"   // an answer or event of the apiserver cannot be decoded
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
	// Text says it in one line, mostly in the apiserver's words.
	Text string
}

// State is how a mirror stands at a moment. Immutable.
//
// The types behind it are unexported and have no setters, so that only a Machine makes one, and
// each holds no more than its kind has: a synced mirror cannot have a next attempt, nor one that
// has been given up. A struct with a kind and every field would allow both.
type State interface {
	Kind() Kind
	// Since is when this kind of state began.
	Since() time.Time
	// Cause is why the mirror is in this state; the zero Cause needs no explanation.
	Cause() Cause
	// Next is when the next attempt is at the latest; zero: no attempt is due, or it is under way.
	Next() time.Time
	// Holds reports that there is a complete state, however old.
	Holds() bool

	// A type that lacks an answer to one of these does not compile.
	completed(at time.Time) State
	opened(at time.Time) State
	interrupted(at time.Time, t degradation) State
	refused(at time.Time, t degradation) State
	fellBack(at time.Time, t degradation) State
	lost(at time.Time, t degradation) State
	waits(next time.Time) State
	gaveUp(at time.Time, c Cause) State
}

// degradation is what a state other than synced has to tell.
type degradation struct {
	cause Cause
	next  time.Time
}

func (t degradation) Cause() Cause    { return t.cause }
func (t degradation) Next() time.Time { return t.next }

// baseState is when a state began, and what all states do the same.
type baseState struct{ since time.Time }

func (e baseState) Since() time.Time                     { return e.since }
func (baseState) gaveUp(at time.Time, c Cause) State     { return givenUp{baseState{at}, c} }
func (baseState) lost(at time.Time, t degradation) State { return refused{baseState{at}, t, false} }
func (baseState) completed(at time.Time) State           { return synced{baseState: baseState{at}} }

// starting has no complete state yet.
type starting struct {
	baseState
	degradation
}

func (starting) Kind() Kind                                     { return KindStarting }
func (starting) Holds() bool                                    { return false }
func (s starting) opened(time.Time) State                       { return s }
func (s starting) interrupted(_ time.Time, t degradation) State { return starting{s.baseState, t} }
func (starting) refused(at time.Time, t degradation) State      { return refused{baseState{at}, t, false} }
func (starting) fellBack(at time.Time, t degradation) State {
	return fallingBack{baseState{at}, t, false}
}
func (s starting) waits(next time.Time) State { s.next = next; return s }

// synced follows a watch. Its cause, if it has one, is why it follows another way than usual.
type synced struct {
	baseState
	cause Cause
}

func (synced) Kind() Kind                                    { return KindSynced }
func (s synced) Cause() Cause                                { return s.cause }
func (synced) Next() time.Time                               { return time.Time{} }
func (synced) Holds() bool                                   { return true }
func (s synced) completed(time.Time) State                   { return s }
func (s synced) opened(time.Time) State                      { return s }
func (synced) interrupted(at time.Time, t degradation) State { return resuming{baseState{at}, t} }
func (synced) refused(at time.Time, t degradation) State     { return refused{baseState{at}, t, true} }
func (synced) fellBack(at time.Time, t degradation) State    { return fallingBack{baseState{at}, t, true} }
func (s synced) waits(time.Time) State                       { return s }

// resuming has a complete state that no watch keeps current.
type resuming struct {
	baseState
	degradation
}

func (resuming) Kind() Kind                                     { return KindResuming }
func (resuming) Holds() bool                                    { return true }
func (resuming) opened(at time.Time) State                      { return synced{baseState: baseState{at}} }
func (r resuming) interrupted(_ time.Time, t degradation) State { return resuming{r.baseState, t} }
func (resuming) refused(at time.Time, t degradation) State      { return refused{baseState{at}, t, true} }
func (resuming) fellBack(at time.Time, t degradation) State {
	return fallingBack{baseState{at}, t, true}
}
func (r resuming) waits(next time.Time) State { r.next = next; return r }

// refused is not served by an apiserver that answers.
type refused struct {
	baseState
	degradation
	holds bool
}

func (refused) Kind() Kind    { return KindRefused }
func (r refused) Holds() bool { return r.holds }
func (r refused) opened(at time.Time) State {
	if !r.holds {
		return r // of a watch-list: the state is on its way
	}
	return synced{baseState: baseState{at}}
}
func (r refused) interrupted(at time.Time, t degradation) State {
	if !r.holds {
		return starting{baseState{at}, t}
	}
	return resuming{baseState{at}, t}
}
func (r refused) refused(_ time.Time, t degradation) State { return refused{r.baseState, t, r.holds} }
func (r refused) lost(_ time.Time, t degradation) State    { return refused{r.baseState, t, false} }
func (r refused) fellBack(at time.Time, t degradation) State {
	return fallingBack{baseState{at}, t, r.holds}
}
func (r refused) waits(next time.Time) State { r.next = next; return r }

// fallingBack waits for a LIST where a watch-list did not end.
type fallingBack struct {
	baseState
	degradation
	holds bool
}

func (fallingBack) Kind() Kind                     { return KindFallingBack }
func (f fallingBack) Holds() bool                  { return f.holds }
func (f fallingBack) completed(at time.Time) State { return synced{baseState{at}, f.cause} }
func (f fallingBack) opened(time.Time) State       { return f }
func (f fallingBack) interrupted(_ time.Time, t degradation) State {
	f.next = t.next // why it falls back stays the cause
	return f
}
func (f fallingBack) refused(at time.Time, t degradation) State {
	return refused{baseState{at}, t, f.holds}
}
func (f fallingBack) fellBack(_ time.Time, t degradation) State {
	return fallingBack{f.baseState, t, f.holds}
}
func (f fallingBack) waits(next time.Time) State { f.next = next; return f }

// givenUp is the end.
type givenUp struct {
	baseState
	cause Cause
}

func (givenUp) Kind() Kind                                 { return KindGivenUp }
func (g givenUp) Cause() Cause                             { return g.cause }
func (givenUp) Next() time.Time                            { return time.Time{} }
func (givenUp) Holds() bool                                { return false }
func (g givenUp) completed(time.Time) State                { return g }
func (g givenUp) opened(time.Time) State                   { return g }
func (g givenUp) interrupted(time.Time, degradation) State { return g }
func (g givenUp) refused(time.Time, degradation) State     { return g }
func (g givenUp) lost(time.Time, degradation) State        { return g }
func (g givenUp) fellBack(time.Time, degradation) State    { return g }
func (g givenUp) waits(time.Time) State                    { return g }
func (g givenUp) gaveUp(time.Time, Cause) State            { return g }
