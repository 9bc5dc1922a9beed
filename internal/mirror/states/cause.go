package states

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
