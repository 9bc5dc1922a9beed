package config

// The memory budget divided by such a number is the bound of one kind of memory. Example: feedShare
// is 8, so with a budget of 800 MB feeds have 100 MB. The table of settings has the other shares.
// All bounds are seldom reached at the same time. The rest of the budget is for the mirrored state,
// of which nothing can be dropped.
const (
	bodyShare     = 16
	feedShare     = 8
	encodingShare = 32 // of encoded objects, when memory is short
)

const (
	// selectorTermBytes is how many bytes of the budget allow one more term of selectors. A term takes
	// 64 bytes, and the terms of all users may take a sixteenth of the budget.
	selectorTermBytes = 64 * 16
	// firstStatesLimit is how many resources on demand are listed at a time, because only the LIST
	// shows how large one is.
	firstStatesLimit = 2
	// minHeadBytes is what one request head of the largest size takes over HTTP/1.1.
	minHeadBytes = 8 << 20
	// minSizeBytes is the least value that ApplyBudget gives to any other size.
	minSizeBytes = 1 << 20
)

// isSet reports that a flag was set: on the command line, in the environment or in the file.
func (o *Settings) isSet(flag string) bool { return o.flags.Changed(flag) }

// ApplyBudget computes the settings that follow from others and were not set themselves: from a
// memory budget in bytes, if it is not 0, and from the number of watches.
func (o *Settings) ApplyBudget(budget int64) {
	if budget > 0 {
		o.lowerTo(budget)
	}
	o.reserveWatches()
}

// lowerTo lowers the sizes and numbers that were not set to their shares of a budget in bytes. A
// share is never less than what one request needs.
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

// watchesReserveShare: one of so many watches remains free for other users when a user has more
// watches than --max-watches-per-user.
const watchesReserveShare = 8

// reserveWatches decides when --max-watches-per-user holds. If it was set, it always holds. If not,
// a user may have more watches as long as the reserve remains free for other users.
func (o *Settings) reserveWatches() {
	if !o.isSet("max-watches-per-user") {
		o.Limits.WatchesReserve = o.Limits.Watches / watchesReserveShare
	}
}
