package states

// Why is the kind of a cause: a value of the label "cause" of metrics; empty if nothing is wrong.
type Why string

// All kinds of cause.
const (
	WhyNoAnswer    Why = "no_answer"   // the apiserver does not answer
	WhyWatchEnded  Why = "watch_ended" // a watch was ended before its time, by the apiserver or on the way
	WhySilent      Why = "silent"      // a watch was open, sent nothing, and could not be proven current
	WhyBusy        Why = "busy"        // the apiserver has too much to do
	WhyRefused     Why = "refused"     // the apiserver answers with an error for this resource
	WhyForbidden   Why = "forbidden"   // the proxy may not list and watch it
	WhyNotServed   Why = "not_served"  // the apiserver does not know the resource
	WhyUncacheable Why = "uncacheable" // it is of a kind that is never mirrored
	WhyMalformed   Why = "malformed"   // what the apiserver sends cannot be read
	WhyNoEndMark   Why = "no_end_mark" // the bookmark that ends a watch-list's initial events does not come
	WhyRelist      Why = "relist"      // the proxy asked for the complete state again
	WhyRedefined   Why = "redefined"   // the resource is served in another way than before
	WhyIdle        Why = "idle"        // no client asks for it
	WhyMemory      Why = "memory"      // memory is short
)

// Cause is why a mirror is in its state.
type Cause struct {
	Why Why
	// Text says it in one line, mostly in the apiserver's words.
	Text string
}
