package rbac

import (
	"maps"
	"slices"
	"time"

	"spillway/internal/auth"
)

// affectedSubjects are the subjects that a change may have taken something from: users and groups,
// in a namespace or everywhere, and tokens that are bound to a pod. It grows until it is taken;
// beyond maxAffected it is all subjects.
type affectedSubjects struct {
	everyone bool
	subjects map[subject]struct{}
	pods     map[string]struct{} // by uid
}

const maxAffected = 4096

// podUIDExtra is where a service account's identity names the pod that its token is bound to.
const podUIDExtra = "authentication.kubernetes.io/pod-uid"

func newAffectedSubjects() *affectedSubjects {
	return &affectedSubjects{subjects: map[subject]struct{}{}, pods: map[string]struct{}{}}
}

func (a *affectedSubjects) empty() bool {
	return !a.everyone && len(a.subjects) == 0 && len(a.pods) == 0
}

func (a *affectedSubjects) add(subjects ...subject) {
	for _, s := range subjects {
		a.subjects[s] = struct{}{}
	}
	a.limit()
}

func (a *affectedSubjects) addPod(uid string) {
	a.pods[uid] = struct{}{}
	a.limit()
}

func (a *affectedSubjects) limit() {
	if a.everyone = a.everyone || len(a.subjects)+len(a.pods) > maxAffected; a.everyone {
		clear(a.subjects)
		clear(a.pods)
	}
}

// merge adds those of another one.
func (a *affectedSubjects) merge(b *affectedSubjects) {
	a.everyone = a.everyone || b.everyone
	maps.Copy(a.subjects, b.subjects)
	maps.Copy(a.pods, b.pods)
	a.limit()
}

// concerns reports that an identity may have lost the right to do something.
func (a *affectedSubjects) concerns(who *auth.Identity, what auth.Attributes) bool {
	if a.everyone || a.has(what.Namespace, false, who.Name()) {
		return true
	}
	bound := func(pod string) bool { _, ok := a.pods[pod]; return ok }
	if len(a.pods) > 0 && slices.ContainsFunc(who.Extra(podUIDExtra), bound) {
		return true
	}
	return who.AnyGroup(func(group string) bool { return a.has(what.Namespace, true, group) })
}

func (a *affectedSubjects) has(namespace string, group bool, name string) bool {
	if _, ok := a.subjects[subject{group: group, name: name}]; ok {
		return true
	}
	_, ok := a.subjects[subject{namespace: namespace, group: group, name: name}]
	return ok && namespace != ""
}

// rechecks are when the subjects that a change affects are to be reviewed. Once is not enough:
// upstream's authorizer learns of a change by a watch of its own, which may be later than ours, and
// another apiserver's by one more; and upstream caches that a token was valid.
type rechecks []recheck

type recheck struct {
	due      time.Time
	subjects *affectedSubjects
}

const (
	// checkMinInterval is the least time between two first checks, so that a burst of changes is one.
	checkMinInterval = 250 * time.Millisecond
	// firstRecheckDelay and lastRecheckDelay are when to check again: when upstream's authorizer has
	// most likely received the change, and when all of them have and no cache of tokens is older.
	firstRecheckDelay = time.Second
	lastRecheckDelay  = auth.UpstreamTokenTTL + time.Second
	// recheckMergeWindow: rechecks nearer to each other than this are merged.
	recheckMergeWindow = time.Second
)

// plan adds the rechecks that follow the first check.
func (l *rechecks) plan(who *affectedSubjects, now time.Time) {
	l.add(who, now.Add(firstRecheckDelay))
	l.add(who, now.Add(lastRecheckDelay))
}

func (l *rechecks) add(who *affectedSubjects, due time.Time) {
	for i := range *l {
		if other := &(*l)[i]; !other.due.Before(due) && other.due.Sub(due) < recheckMergeWindow {
			other.subjects.merge(who)
			return
		}
	}
	one := newAffectedSubjects()
	one.merge(who)
	*l = append(*l, recheck{due.Add(recheckMergeWindow - 1), one})
}

// take returns the subjects that are due for a review.
func (l *rechecks) take(now time.Time) *affectedSubjects {
	who := newAffectedSubjects()
	*l = slices.DeleteFunc(*l, func(one recheck) bool {
		due := !now.Before(one.due)
		if due {
			who.merge(one.subjects)
		}
		return due
	})
	return who
}

// next is when the next recheck is due; zero: there is none.
func (l rechecks) next() time.Time {
	var next time.Time
	for _, one := range l {
		if next.IsZero() || one.due.Before(next) {
			next = one.due
		}
	}
	return next
}
