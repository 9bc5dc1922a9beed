package config

// What a budget is divided into, where limits are not set otherwise: parts of it, one in so many.
// What they bound is seldom there at the same time; what is left is for the state, of which nothing
// can be given up.
const (
	encodedPart = 8
	historyPart = 8 // of each resource
	listPart    = 2 // of which a list that is being sent takes a small part itself; see flowcontrol.Limits.ListBytes
	bodyPart    = 16
	headPart    = 16
	feedPart    = 8
	termPart    = 16 // of which the selectors of all users take selectorTerm a term
	formPart    = 32 // what is kept of forms when memory is short
	// connectionPrice and watchPrice are what one of them is reckoned at, with what the kernel holds.
	connectionPrice = 64 << 10
	watchPrice      = 16 << 10
	selectorTerm    = 64
	// firstStatesLimit is how many resources are listed at a time because clients request them: how
	// large they are shows only then.
	firstStatesLimit = 2
	// minHeadBytes is what one of the largest heads over HTTP/1.1 takes.
	minHeadBytes = 8 << 20
)

// minListBytes is the least part that a size is lowered to.
const minListBytes = 1 << 20

// given reports that a flag was set, wherever.
func (o *Settings) given(flag string) bool { return o.flags.Changed(flag) }

// Divide lowers what follows from a budget and was not set; 0: there is none.
func (o *Settings) Divide(budget int64) {
	if budget > 0 {
		o.lower(budget)
	}
	o.reserve()
}

// lower lowers what was not set to what goes with a budget.
func (o *Settings) lower(budget int64) {
	size := func(flag string, value *ByteSize, part int64) {
		if !o.given(flag) {
			*value = min(*value, ByteSize(max(budget/part, minListBytes)))
		}
	}
	number := func(flag string, value *int, most int64) {
		if !o.given(flag) {
			*value = min(*value, int(max(most, 1)))
		}
	}
	size("encoding-cache-bytes", &o.EncodingCacheBytes, encodedPart)
	size("history-bytes", &o.HistoryBytes, historyPart)
	size("max-list-bytes-in-flight", &o.Limits.ListBytes, listPart)
	if !o.given("max-large-header-bytes") {
		o.Limits.HeaderBytes = min(o.Limits.HeaderBytes, ByteSize(max(budget/headPart, minHeadBytes)))
	}
	number("max-watches", &o.Limits.Watches, budget/watchPrice)
	number("max-watches-per-user", &o.Limits.WatchesPerUser, budget/watchPrice/2)
	number("max-selector-terms-per-user", &o.Limits.SelectorTermsPerUser, budget/termPart/selectorTerm/2)
	o.Limits.SelectorTerms = int(max(budget/termPart/selectorTerm, 1))
	o.Limits.BodyBytes = max(budget/bodyPart, minListBytes)
	o.LeastForms = budget / formPart
	o.FirstStates, o.FeedBytes = firstStatesLimit, max(budget/feedPart, minListBytes)
	if !o.given("max-connections") {
		o.MaxConnections = min(o.Connections(), int(max(budget/connectionPrice, 1)))
	}
}

// watchesReservePart is the part of all watches, one in so many, that remains free for others when
// a user has more than half of them.
const watchesReservePart = 8

// reserve sets what remains free for others. A bound of one user that was set is a bound; one that
// follows from the whole is a share, which holds while others want theirs.
func (o *Settings) reserve() {
	if !o.given("max-watches-per-user") {
		o.Limits.WatchesReserve = o.Limits.Watches / watchesReservePart
	}
}
