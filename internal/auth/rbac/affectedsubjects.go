package rbac

import (
	"maps"
	"slices"

	"spillway/internal/auth"
)

// affectedSubjectsLimit bounds the subjects and pods that are distinguished.
const affectedSubjectsLimit = 4096

// podUIDExtra is where a service account's identity names the pod that its token is bound to.
const podUIDExtra = "authentication.kubernetes.io/pod-uid"

// affectedSubjects are those that a change may have taken something from: users and groups, in a
// namespace or everywhere, and tokens that are bound to a pod. Beyond affectedSubjectsLimit it is
// all subjects.
type affectedSubjects struct {
	areAll   bool
	subjects map[subject]struct{}
	pods     map[string]struct{} // by uid
}

func newAffectedSubjects() *affectedSubjects {
	return &affectedSubjects{subjects: map[subject]struct{}{}, pods: map[string]struct{}{}}
}

func (a *affectedSubjects) isEmpty() bool {
	return !a.areAll && len(a.subjects) == 0 && len(a.pods) == 0
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

// limit replaces the names by areAll once there are too many of them.
func (a *affectedSubjects) limit() {
	if a.areAll = a.areAll || len(a.subjects)+len(a.pods) > affectedSubjectsLimit; a.areAll {
		clear(a.subjects)
		clear(a.pods)
	}
}

// merge adds all that b holds.
func (a *affectedSubjects) merge(b *affectedSubjects) {
	a.areAll = a.areAll || b.areAll
	maps.Copy(a.subjects, b.subjects)
	maps.Copy(a.pods, b.pods)
	a.limit()
}

// concerns reports that an identity may have lost the right to do something.
func (a *affectedSubjects) concerns(who *auth.Identity, what auth.Attributes) bool {
	if a.areAll || a.has(subject{namespace: what.Namespace, name: who.Name()}) {
		return true
	}
	isAffected := func(pod string) bool { _, ok := a.pods[pod]; return ok }
	if slices.ContainsFunc(who.Extra(podUIDExtra), isAffected) {
		return true
	}
	return who.AnyGroup(func(group string) bool {
		return a.has(subject{namespace: what.Namespace, isGroup: true, name: group})
	})
}

// has reports that a subject is affected, in its namespace or everywhere.
func (a *affectedSubjects) has(s subject) bool {
	_, inNamespace := a.subjects[s]
	s.namespace = ""
	_, everywhere := a.subjects[s]
	return inNamespace || everywhere
}
