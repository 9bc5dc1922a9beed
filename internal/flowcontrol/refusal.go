package flowcontrol

import "time"

// Reason is why somebody was refused: a metric's label. The first four are called as in
// kube-apiserver's apiserver_flowcontrol_rejected_requests_total.
type Reason string

// The reasons.
const (
	ReasonLimit     Reason = "concurrency-limit" // all of the limit is held, and nobody may wait
	ReasonQueueFull Reason = "queue-full"        // as many wait already as may, of the flow or in all
	ReasonTimeout   Reason = "time-out"          // it waited for as long as one may
	ReasonCancelled Reason = "cancelled"         // it went away while it waited
	ReasonShare     Reason = "user-limit"        // its flow holds all that one flow may, and nobody may wait
	ReasonRate      Reason = "user-rate"         // its flow asks too often
)

// Reasons are all of them, so that each is a metric from the start.
var Reasons = []Reason{ReasonLimit, ReasonQueueFull, ReasonTimeout, ReasonCancelled, ReasonShare, ReasonRate}

// Refusal is what those get who are not let in.
type Refusal struct {
	Reason Reason
	// RetryAfter is when to ask again: whole seconds, at least one, and not the same for all who are
	// refused at once.
	RetryAfter time.Duration
}
