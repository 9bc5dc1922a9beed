package rbac

import (
	"time"

	"spillway/internal/auth"
)

// Access implements auth.LocalDecider.
func (r *LocalAuthorizer) Access(
	review auth.ReviewFunc[auth.ReviewRequest, auth.AccessStatus],
) auth.DecideFunc[auth.ReviewRequest, auth.AccessStatus] {
	if !r.opts.RBAC {
		return nil
	}
	return newCheckedDecider(r, deciderOptions[auth.ReviewRequest, auth.AccessStatus]{
		kind: reviewOfAccess, decide: r.decideAccess, awaitsProof: r.awaitsProof, review: review,
		agrees: func(_, there auth.AccessStatus) bool { return auth.VerdictOf(there) != auth.Denied },
	}).decideChecked
}

// decideAccess allows what rules allow, by tables that are proven. It never denies.
func (r *LocalAuthorizer) decideAccess(_ auth.Digest, q auth.ReviewRequest) (auth.Answer[auth.AccessStatus], bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, isProven := r.provenLocked(r.rbacTables()...)
	var at time.Time
	if !isProven || !r.index.allows(q.Identity, &q.Attributes, func(b *binding) (ok bool) {
		at, ok = r.togetherLocked(b)
		return ok
	}) {
		return auth.Answer[auth.AccessStatus]{}, false
	}
	return auth.Answer[auth.AccessStatus]{Value: auth.AccessStatus{Allowed: true}, At: at}, true
}

// awaitsProof reports that a role and a binding would allow something, if they were known to have
// existed together.
func (r *LocalAuthorizer) awaitsProof(q auth.ReviewRequest) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.index.allows(q.Identity, &q.Attributes, func(b *binding) bool {
		_, ok := r.togetherLocked(b)
		return !ok
	})
}
