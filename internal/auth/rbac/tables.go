package rbac

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"spillway/internal/object"
)

// tables are those of a LocalAuthorizer, with what they share: a lock, and the order of what they
// receive and ask.
type tables struct {
	// Static after construction.
	clock                             clock.Clock
	metrics                           *DecisionMetrics
	proveThrough                      func(context.Context, *object.Resource, uint64) (last, reached uint64, err error)
	roles, clusterRoles               *PermissionTable
	roleBindings, clusterRoleBindings *PermissionTable
	accounts                          *PermissionTable
	pods                              *PermissionTable // nil: they are not watched

	mu sync.RWMutex
	// Guarded by mu, as are the tables.
	last    sequence
	changed time.Time // when anything in the tables last did
}

// sequence numbers facts and questions in the order in which the tables received and asked them. No
// two have the same number, unlike a time, and no clock that is set disturbs the order.
type sequence uint64

// nextLocked is the next number.
func (s *tables) nextLocked() sequence {
	s.last++
	return s.last
}

// rbacTables are those of roles and bindings.
func (s *tables) rbacTables() []*PermissionTable {
	return []*PermissionTable{s.roles, s.clusterRoles, s.roleBindings, s.clusterRoleBindings}
}

// Tables are all that is watched.
func (s *tables) Tables() []*PermissionTable {
	all := append(s.rbacTables(), s.accounts)
	if s.pods != nil {
		all = append(all, s.pods)
	}
	return all
}

// decidedTogether are the tables whose facts are decided by together with a table's, itself
// included: roles and bindings.
func (s *tables) decidedTogether(t *PermissionTable) []*PermissionTable {
	if all := s.rbacTables(); slices.Contains(all, t) {
		return all
	}
	return []*PermissionTable{t}
}

// changedSince reports that something in the tables has changed after a time.
func (s *tables) changedSince(t time.Time) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed.After(t)
}
