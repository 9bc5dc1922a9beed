package flowcontrol

import "time"

// Reason is why a request was refused: a metric's label. The first four have the names of
// kube-apiserver's apiserver_flowcontrol_rejected_requests_total.
type Reason string

// The reasons.
const (
	ReasonLimit     Reason = "concurrency-limit" // all of the limit is held, and there is no queue
	ReasonQueueFull Reason = "queue-full"        // the queue is full, that of the flow or of all
	ReasonTimeout   Reason = "time-out"          // it waited for Options.Wait
	ReasonCancelled Reason = "cancelled"         // its client left while it waited
	ReasonShare     Reason = "user-limit"        // its flow holds its share, and there is no queue
	ReasonRate      Reason = "user-rate"         // its flow exceeds its rate
)

// Reasons are all of them, so that each is a metric from the start.
var Reasons = []Reason{ReasonLimit, ReasonQueueFull, ReasonTimeout, ReasonCancelled, ReasonShare, ReasonRate}

// Refusal is why a request is not admitted.
type Refusal struct {
	Reason Reason
	// RetryAfter is when the client should retry: whole seconds, at least one, and different for
	// requests that are refused at the same time.
	RetryAfter time.Duration
}
