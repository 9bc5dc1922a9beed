package rbac

// roleChangedLocked notes a change of a Role.
func (r *LocalAuthorizer) roleChangedLocked(key string, before, after any) {
	o := splitKey(key)
	r.rulesChangedLocked(roleRef{namespace: o.namespace, name: o.name}, before, after)
}

// clusterRoleChangedLocked notes a change of a ClusterRole.
func (r *LocalAuthorizer) clusterRoleChangedLocked(key string, before, after any) {
	r.rulesChangedLocked(roleRef{isCluster: true, name: key}, before, after)
}

// rulesChangedLocked notes a change of what a role allows. A new role takes nothing from its
// subjects.
func (r *LocalAuthorizer) rulesChangedLocked(ref roleRef, before, after any) {
	now, _ := after.(*role)
	r.index.setRole(ref, now)
	if before == nil {
		return
	}
	for b := range r.index.bound[ref] {
		r.affectLocked(b.subjects...)
	}
}

// bindingChangedLocked notes a change of a binding of either kind. New subjects may have gained
// something, and lost nothing.
func (r *LocalAuthorizer) bindingChangedLocked(_ string, before, after any) {
	was, _ := before.(*binding)
	is, _ := after.(*binding)
	r.index.setBinding(was, is)
	if was != nil {
		r.affectLocked(was.subjects...)
	}
}

// accountChangedLocked notes a change of a service account. A token names the uid of its account,
// so it is void once the account is gone, even if another one has its name.
func (r *LocalAuthorizer) accountChangedLocked(key string, before, after any) {
	if isGone(before, after) {
		o := splitKey(key)
		r.affectLocked(subject{name: serviceAccountName(o.namespace, o.name)})
	}
}

// podChangedLocked notes a change of a pod.
func (r *LocalAuthorizer) podChangedLocked(_ string, before, after any) {
	if isGone(before, after) {
		r.pending.addPod(before.(presence).uid)
		r.notify()
	}
}

// isGone reports that an object that existed was deleted, or replaced by one with another uid. Both
// arguments are a presence, or nil if there is no object.
func isGone(before, after any) bool {
	was, there := before.(presence)
	is, still := after.(presence)
	return there && !(still && is.uid == was.uid)
}

// affectLocked notes subjects that may have lost something.
func (r *LocalAuthorizer) affectLocked(subjects ...subject) {
	r.pending.add(subjects...)
	r.notify()
}

// notify has checkAffected look at pending.
func (r *LocalAuthorizer) notify() {
	select {
	case r.wakeCh <- struct{}{}:
	default:
	}
}
