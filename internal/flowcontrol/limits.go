package flowcontrol

// Limits bound what clients have at a time, in all and for each user. 0 is no limit.
type Limits struct {
	// Watches bounds all that lasts: watches, from memory and passed through, and what passes through
	// and lasts otherwise: logs, exec, attach, port-forward, proxy. A request beyond it is refused at
	// once. While WatchesReserve of them remain free, one user may have more than WatchesPerUser; 0:
	// never.
	Watches, WatchesPerUser, WatchesReserve int
	// ListBytes bounds the large answers from memory that are being made and sent: LISTs, and the
	// states that watches begin with. One user has half of it at most. Beyond it they wait, and are
	// then refused.
	ListBytes int64
	// SelectorTerms bounds what the selectors of watches from memory weigh. A watch beyond the bound
	// is refused at once.
	SelectorTerms, SelectorTermsPerUser int
	// BodyBytes bounds the bodies that are read before they are sent on, so that they can be sent
	// again. Others are sent on while they come. Unproven senders have a part of it, also without a
	// limit.
	BodyBytes int64
	// HeaderBytes bounds what large heads of requests hold together.
	HeaderBytes int64
	// PassThrough bounds the requests that are under way to upstream and have an answer that ends. An
	// eighth of it is all that unproven senders have together: upstream has not accepted them.
	// Watches count until their answer begins; all else that lasts does not count, as in
	// kube-apiserver's flow control. Beyond it they wait, and are then refused.
	PassThrough, PassThroughPerUser int
	// PassThroughQPS is how many requests of one user pass through per second, after a burst.
	PassThroughQPS   float64
	PassThroughBurst int
}

// Queue is the room for requests that wait for one limit. The zero Queue has none: what finds the
// limit reached is refused at once.
type Queue struct {
	Requests, RequestsPerUser int
}

// DefaultQueue is as long as that of kube-apiserver's workload-low level, where controllers are: it
// holds 128 queues of 50, of which a user has 6.
var DefaultQueue = Queue{Requests: 6400, RequestsPerUser: 300}
