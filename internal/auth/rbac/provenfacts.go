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

// hadFactLocked reports that the API server had an object's fact when a question was sent: the last
// one of this table, or an earlier one of another table. The table showed a state from before the
// question when it received the fact, and shows one from after it since the proof. In between it
// has left out no change, and the fact is still the same. So the API server kept it as well.
func (t *PermissionTable) hadFactLocked(key string, asked sequence) bool {
	e, there := t.entries[key]
	return there && e.received < asked
}

// togetherLocked is the last moment at which the API server is known to have had a binding and its
// role as they are here. It is when the older of the proofs of their tables began, if both were
// here by then. It reports false if there is no such moment, or it does not count any more.
//
// Moments of this process are compared, not versions of two resources. An API server may keep the
// two in two etcds (--etcd-servers-overrides), whose versions say nothing about each other, and
// nothing the API server tells whether it does.
func (s *tables) togetherLocked(b *binding) (at time.Time, ok bool) {
	bindings, roles := s.roleBindings, s.roles
	if b.isEverywhere {
		bindings = s.clusterRoleBindings
	}
	if b.role.isCluster {
		roles = s.clusterRoles
	}
	asked := min(bindings.asked, roles.asked)
	at, ok = s.provenLocked(bindings, roles)
	return at, ok && bindings.hadFactLocked(b.key, asked) && roles.hadFactLocked(b.role.key(), asked)
}
