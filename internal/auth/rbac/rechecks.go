package rbac

import (
	"slices"
	"time"

	"spillway/internal/auth"
)

const (
	// checkMinInterval is the least time between two first checks, so that a burst of changes is one.
	checkMinInterval = 250 * time.Millisecond
	// firstRecheckDelay is the least time until the second review: the API server's authorizer has
	// then most likely received the change.
	firstRecheckDelay = time.Second
	// lastRecheckDelay is the least time until the last review: all API servers have the
	// change then, and none remembers a token from the time before it.
	lastRecheckDelay = auth.UpstreamTokenTTL + time.Second
	// recheckMergeWindow is how much later a recheck may be, so that one serves several changes.
	recheckMergeWindow = time.Second
)

// rechecks are the reviews to come of subjects that a change affects. One review is not enough.
// The API server's authorizer receives a change by a watch of its own, which may be later than the
// mirror's. Another API server's may be later still. And the API server caches that a token was
// valid.
type rechecks []recheck

type recheck struct {
	due      time.Time
	subjects *affectedSubjects
}

// plan adds the rechecks that follow the first check.
func (l *rechecks) plan(affected *affectedSubjects, now time.Time) {
	l.add(affected, now.Add(firstRecheckDelay))
	l.add(affected, now.Add(lastRecheckDelay))
}

// add adds a recheck that is due at the given time or up to recheckMergeWindow later. One that is
// planned within this window takes the subjects. A new one is planned for the end of its window, so
// that the changes that follow can join it.
func (l *rechecks) add(affected *affectedSubjects, due time.Time) {
	for i := range *l {
		if other := &(*l)[i]; !other.due.Before(due) && other.due.Sub(due) < recheckMergeWindow {
			other.subjects.merge(affected)
			return
		}
	}
	subjects := newAffectedSubjects()
	subjects.merge(affected)
	*l = append(*l, recheck{due.Add(recheckMergeWindow - 1), subjects})
}

// take removes and returns the subjects that are due for a review.
func (l *rechecks) take(now time.Time) *affectedSubjects {
	affected := newAffectedSubjects()
	*l = slices.DeleteFunc(*l, func(r recheck) bool {
		isDue := !now.Before(r.due)
		if isDue {
			affected.merge(r.subjects)
		}
		return isDue
	})
	return affected
}

// next is when the next recheck is due; zero: there is none.
func (l rechecks) next() time.Time {
	var next time.Time
	for _, r := range l {
		if next.IsZero() || r.due.Before(next) {
			next = r.due
		}
	}
	return next
}
