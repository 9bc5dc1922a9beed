package rbac

import (
	"slices"
	"time"

	"spillway/internal/auth"
)

// affected are the subjects that a change may have taken something from: users and groups, in a
// namespace or everywhere, and tokens that are bound to a pod. It grows until it is taken; beyond
// maxAffected it is all subjects.
type affected struct {
	everyone bool
	subjects map[subject]struct{}
	pods     map[string]struct{} // by uid
}

const maxAffected = 4096

// podUIDExtra is where a service account's identity names the pod that its token is bound to.
const podUIDExtra = "authentication.kubernetes.io/pod-uid"

func newAffected() *affected {
	return &affected{subjects: map[subject]struct{}{}, pods: map[string]struct{}{}}
}

func (a *affected) empty() bool { return !a.everyone && len(a.subjects) == 0 && len(a.pods) == 0 }

func (a *affected) add(subjects ...subject) {
	for _, s := range subjects {
		a.subjects[s] = struct{}{}
	}
	a.limit()
}

func (a *affected) addPod(uid string) {
	a.pods[uid] = struct{}{}
	a.limit()
}

func (a *affected) limit() {
	if a.everyone = a.everyone || len(a.subjects)+len(a.pods) > maxAffected; a.everyone {
		clear(a.subjects)
		clear(a.pods)
	}
}

// merge adds those of another one.
func (a *affected) merge(b *affected) {
	a.everyone = a.everyone || b.everyone
	for s := range b.subjects {
		a.subjects[s] = struct{}{}
	}
	for uid := range b.pods {
		a.pods[uid] = struct{}{}
	}
	a.limit()
}

// concerns reports that an identity may have lost the right to do something.
func (a *affected) concerns(who *auth.Identity, what auth.Attributes) bool {
	if a.everyone || a.has(what.Namespace, false, who.Name()) {
		return true
	}
	bound := func(pod string) bool { _, ok := a.pods[pod]; return ok }
	if len(a.pods) > 0 && slices.ContainsFunc(who.Extra(podUIDExtra), bound) {
		return true
	}
	return who.AnyGroup(func(group string) bool { return a.has(what.Namespace, true, group) })
}

func (a *affected) has(namespace string, group bool, name string) bool {
	if _, ok := a.subjects[subject{group: group, name: name}]; ok {
		return true
	}
	_, ok := a.subjects[subject{namespace: namespace, group: group, name: name}]
	return ok && namespace != ""
}

// looks are when the subjects that a change affects are to be reviewed. Once is not enough:
// upstream's authorizer hears of a change by a watch of its own, which may be later than ours, and
// another apiserver's by one more; and it remembers of tokens that they were good.
type looks []look

type look struct {
	due time.Time
	who *affected
}

const (
	// lookEvery is the least time between two first looks, so that a burst of changes is one.
	lookEvery = 250 * time.Millisecond
	// lookAgain and lookLast are when to look again: when upstream's authorizer has most likely
	// heard, and when all of them have, and what is remembered of tokens is forgotten.
	lookAgain = time.Second
	lookLast  = auth.UpstreamTokensFor + time.Second
	// lookWith is how near to each other looks are made one.
	lookWith = time.Second
)

// plan adds the looks that follow the first.
func (l *looks) plan(who *affected, now time.Time) {
	l.add(who, now.Add(lookAgain))
	l.add(who, now.Add(lookLast))
}

func (l *looks) add(who *affected, due time.Time) {
	for i := range *l {
		if other := &(*l)[i]; !other.due.Before(due) && other.due.Sub(due) < lookWith {
			other.who.merge(who)
			return
		}
	}
	one := newAffected()
	one.merge(who)
	*l = append(*l, look{due.Add(lookWith - 1), one})
}

// take returns the subjects that are due for a review.
func (l *looks) take(now time.Time) *affected {
	who := newAffected()
	*l = slices.DeleteFunc(*l, func(one look) bool {
		due := !now.Before(one.due)
		if due {
			who.merge(one.who)
		}
		return due
	})
	return who
}

// next is when the next look is due; zero: there is none.
func (l looks) next() time.Time {
	var next time.Time
	for _, one := range l {
		if next.IsZero() || one.due.Before(next) {
			next = one.due
		}
	}
	return next
}
