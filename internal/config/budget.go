package config

// What a budget is divided into besides the parts of settings, which their rows have. What all
// these bound is seldom there at the same time; what is left is for the state, of which nothing can
// be given up.
const (
	bodyPart = 16
	feedPart = 8
	formPart = 32 // what is kept of forms when memory is short
	// selectorTermBytes are what a term is reckoned at; the selectors of all users have a sixteenth of
	// the budget.
	selectorTermBytes = 64 * 16
	// firstStatesLimit is how many resources are listed at a time because clients request them: how
	// large they are shows only then.
	firstStatesLimit = 2
	// minHeadBytes is what one of the largest heads over HTTP/1.1 takes.
	minHeadBytes = 8 << 20
	// minPartBytes is the least that another size is lowered to.
	minPartBytes = 1 << 20
)

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
	if !o.given("max-connections") {
		o.MaxConnections = o.Connections()
	}
	for _, s := range o.rows {
		if s.part == 0 || o.given(s.name) {
			continue
		}
		switch v := s.value.(type) {
		case *ByteSize:
			*v = min(*v, ByteSize(max(budget/s.part, minPartBytes)))
		case *int:
			*v = min(*v, int(max(budget/s.part, 1)))
		}
	}
	if !o.given("max-large-header-bytes") {
		o.Limits.HeaderBytes = max(o.Limits.HeaderBytes, minHeadBytes)
	}
	o.Limits.SelectorTerms = int(max(budget/selectorTermBytes, 1))
	o.Limits.BodyBytes = max(budget/bodyPart, minPartBytes)
	o.LeastForms = budget / formPart
	o.FirstStates, o.FeedBytes = firstStatesLimit, max(budget/feedPart, minPartBytes)
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
