package config

// The shares of a memory budget that no row of the table has: one of so many. What all shares bound
// is seldom in memory at the same time. The rest is for the state, of which nothing can be dropped.
const (
	bodyShare     = 16
	feedShare     = 8
	encodingShare = 32 // of encoded objects, when memory is short
)

const (
	// selectorTermBytes is the part of the budget for one term of a selector. A term takes 64 bytes,
	// and the selectors of all users have a sixteenth of the budget.
	selectorTermBytes = 64 * 16
	// firstStatesLimit is how many resources on demand are listed at a time, because only the LIST
	// shows how large one is.
	firstStatesLimit = 2
	// minHeadBytes is what one of the largest heads over HTTP/1.1 takes.
	minHeadBytes = 8 << 20
	// minSizeBytes is the least that another size is lowered to.
	minSizeBytes = 1 << 20
)

// isSet reports that a flag was set: on the command line, in the environment or in the file.
func (o *Settings) isSet(flag string) bool { return o.flags.Changed(flag) }

// ApplyBudget lowers the settings that follow from a memory budget and were not set; 0: there is no
// budget.
func (o *Settings) ApplyBudget(budget int64) {
	if budget > 0 {
		o.lowerTo(budget)
	}
	o.reserveWatches()
}

func (o *Settings) lowerTo(budget int64) {
	if !o.isSet("max-connections") {
		o.MaxConnections = o.Connections()
	}
	for _, s := range o.rows {
		if o.isSet(s.name) {
			continue
		}
		switch v := s.value.(type) {
		case *ByteSize:
			if s.budgetShare > 0 {
				*v = min(*v, ByteSize(max(budget/s.budgetShare, minSizeBytes)))
			}
		case *int:
			if s.budgetBytes > 0 {
				*v = min(*v, int(max(budget/s.budgetBytes, 1)))
			}
		}
	}
	if !o.isSet("max-large-header-bytes") {
		o.Limits.HeaderBytes = max(o.Limits.HeaderBytes, minHeadBytes)
	}
	o.Limits.SelectorTerms = int(max(budget/selectorTermBytes, 1))
	o.Limits.BodyBytes = max(budget/bodyShare, minSizeBytes)
	o.MinEncodingCacheBytes = budget / encodingShare
	o.FirstStates, o.FeedBytes = firstStatesLimit, max(budget/feedShare, minSizeBytes)
}

// watchesReserveShare is the share of all watches, one of so many, that remains free for others
// when a user has more than its own bound.
const watchesReserveShare = 8

// reserveWatches keeps watches free for other users. A user's bound that was set always holds. One
// that was not set holds only while fewer watches than these are free.
func (o *Settings) reserveWatches() {
	if !o.isSet("max-watches-per-user") {
		o.Limits.WatchesReserve = o.Limits.Watches / watchesReserveShare
	}
}
