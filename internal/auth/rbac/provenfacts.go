package rbac

import (
	"time"

	"spillway/internal/auth"
)

// isRecent reports that what was proven at a time still counts.
func (s *tables) isRecent(at time.Time) bool { return s.clock.Now().Sub(at) < auth.AnswerTTL }

// provenLocked is when the oldest proof of some tables began. It reports false unless each of them
// has one that still counts.
func (s *tables) provenLocked(tables ...*PermissionTable) (time.Time, bool) {
	oldest := s.clock.Now()
	for _, t := range tables {
		if !t.isWhole || t.proven.IsZero() {
			return time.Time{}, false
		}
		if t.proven.Before(oldest) {
			oldest = t.proven
		}
	}
	return oldest, s.isRecent(oldest)
}

// hadFactLocked reports that the API server had the object's fact when question was sent. question
// is not later than the one of the table's last proof. A fact received earlier and not renumbered
// has not changed since: the proof excludes missed changes.
func (t *PermissionTable) hadFactLocked(key string, question sequence) bool {
	e, there := t.entries[key]
	return there && e.received < question
}

// togetherLocked is the last moment at which the API server is known to have had a binding and its
// role as they are here. It is when the older of the proofs of their tables began, if both were
// here by then. It reports false if there is no such moment, or it does not count any more.
//
// Moments of this process are compared, not versions of two resources. An API server may keep the
// two in two etcds (--etcd-servers-overrides), whose versions say nothing about each other. It does
// not tell whether it does.
func (s *tables) togetherLocked(b *binding) (at time.Time, ok bool) {
	bindings, roles := s.roleBindings, s.roles
	if b.isEverywhere {
		bindings = s.clusterRoleBindings
	}
	if b.role.isCluster {
		roles = s.clusterRoles
	}
	question := min(bindings.question, roles.question)
	at, ok = s.provenLocked(bindings, roles)
	return at, ok && bindings.hadFactLocked(b.key, question) && roles.hadFactLocked(b.role.key(), question)
}
