// Package rbac decides questions about permissions and tokens by upstream's state, without a
// review, and finds the watches that a change of that state may have ended.
//
// LocalAuthorizer mirrors roles, bindings, service accounts and, if configured, pods, each in a
// Table, and fetch the keys that upstream signs tokens with. They implement auth.LocalDecider.
//
// Invariant: LocalAuthorizer only ever allows, and only by tables that are proven: upstream
// reported its position within auth.AllowedTTL, and the table has caught up with it. An open watch
// that has received nothing proves nothing, and nor does an informer's cache: its age is not known.
// What is not allowed here is upstream's to decide, and a share of what is allowed is checked
// there.
//
// kube-apiserver's own RBAC authorizer is no module that could be imported, and reads its informers
// without checking their age.
package rbac

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
	"spillway/internal/object"
)

// TokenMode says which service accounts' tokens may be found good without asking upstream.
type TokenMode string

// The choices.
const (
	TokensNone TokenMode = ""
	// TokensUnbound: those that are bound to nothing but their service account.
	TokensUnbound TokenMode = "unbound"
	// TokensPods: those that are bound to a pod, too. Every pod of the cluster is watched for that.
	TokensPods TokenMode = "pods"
)

// LocalAuthorizerOptions configure LocalAuthorizer.
type LocalAuthorizerOptions struct {
	// Follow mirrors a table's resource into it until ctx ends, or returns the error with which
	// upstream refuses that.
	Follow func(ctx context.Context, t *PermissionTable) error
	// Through requests upstream's version. A mirror that has reached last holds everything that was
	// acknowledged before the call; nothing happened between last and reached. A reached below from
	// means that upstream is behind a version that it has shown before. RBAC and Tokens need it.
	Through func(ctx context.Context, r *object.Resource, from uint64) (last, reached uint64, err error)
	// RBAC lets an Authorizer decide by roles and bindings.
	RBAC bool
	// Tokens lets an Authenticator decide by signatures, service accounts and pods. It needs a
	// Reviewer, which fetches the keys.
	Tokens   TokenMode
	Reviewer *auth.Reviewer
	Clock    clock.Clock      // nil: the real one
	Random   func() float64   // in [0, 1), chooses what is checked; nil: math/rand's
	Metrics  *DecisionMetrics // nil: nothing is registered
	Log      *zap.Logger      // nil: nowhere
}

// LocalAuthorizer watches what decides about permissions: Roles, ClusterRoles, their bindings, and
// service accounts. They serve two purposes.
//
// Watches that may have lost something by a change are reviewed at once (Reauthorizer.Check). That
// decides nothing by itself, and where upstream does not let these be watched, the sweep goes on
// alone.
//
// And they may decide, where the operator says so: RBAC by its rules, Tokens by signature and
// existence. Invariant: they only ever say yes, and only by tables each of which has been proven
// within AllowedTTL, by a probe of upstream that began then; a yes is as old as the oldest of those
// probes that it rests on. Everything else, a no included, is for upstream to decide. One in a
// hundred is reviewed there all the same, and if upstream denies what was allowed here, nothing is
// decided here any more.
type LocalAuthorizer struct {
	// Static after construction.
	opts   LocalAuthorizerOptions
	log    *zap.Logger
	keys   *keyring
	wakeCh chan struct{}              // holds one: a subject is affected
	jobs   chan func(context.Context) // checks that wait for their turn

	tables
	// Guarded by the lock of the tables.
	rbac    *rbac
	pending *affectedSubjects
}

const (
	// proveEvery is how long after the beginning of one proof the next one begins. It takes
	// upstream up to 1.7 s to answer (W-111), and that has to leave room within AllowedTTL for one
	// that fails.
	proveEvery = 5 * time.Second
	proveRetry = time.Second
	// proveLeast is the least time between the beginnings of two proofs.
	proveLeast = time.Second
	// proofTimeout bounds a proof.
	proofTimeout = 4 * time.Second
	// forbiddenRetry is how soon to watch a table again that upstream forbids to watch.
	forbiddenRetry = time.Minute
	// maxJobs and jobsAtOnce bound the checks that wait, and those that are under way.
	maxJobs    = 16
	jobsAtOnce = 2
)

// NewLocalAuthorizer returns LocalAuthorizer that know nothing until Run.
func NewLocalAuthorizer(o LocalAuthorizerOptions) *LocalAuthorizer {
	o.Clock, o.Log = cmp.Or(o.Clock, clock.Clock(clock.RealClock{})), cmp.Or(o.Log, zap.NewNop())
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	r := &LocalAuthorizer{
		opts: o, log: o.Log, pending: newAffectedSubjects(),
		wakeCh: make(chan struct{}, 1), jobs: make(chan func(context.Context), maxJobs),
		tables: tables{clock: o.Clock, metrics: o.Metrics, through: o.Through},
	}
	r.rbac = newRBAC()
	rbacGroup := func(resource, kind string, namespaced bool) *object.Resource {
		gvr := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
		return object.NewResource(gvr, kind, namespaced, true)
	}
	core := func(resource, kind string) *object.Resource {
		return object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: resource}, kind, true, true)
	}
	r.roles = newTable(&r.tables, rbacGroup("roles", "Role", true), readRole, r.roleChanged)
	r.clusterRoles = newTable(&r.tables, rbacGroup("clusterroles", "ClusterRole", false), readRole, r.clusterRoleChanged)
	r.roleBindings = newTable(&r.tables, rbacGroup("rolebindings", "RoleBinding", true), readBinding, r.bindingChanged)
	clusterBindings := rbacGroup("clusterrolebindings", "ClusterRoleBinding", false)
	r.clusterBinds = newTable(&r.tables, clusterBindings, readBinding, r.bindingChanged)
	r.accounts = newTable(&r.tables, core("serviceaccounts", "ServiceAccount"), readExisting, r.accountChanged)
	for _, t := range r.rbacTables() {
		t.proves = o.RBAC
	}
	r.accounts.proves = o.Tokens != TokensNone
	if o.Tokens == TokensPods {
		r.pods = newTable(&r.tables, core("pods", "Pod"), readExisting, r.podChanged)
		r.pods.proves = true
	}
	if o.Tokens != TokensNone {
		r.keys = newKeyring(o.Reviewer)
	}
	return r
}

// Run watches until ctx ends, and returns when nothing is under way any more. check gets the
// subjects that may have lost something; it must return at once.
func (r *LocalAuthorizer) Run(ctx context.Context, check func(concerns func(*auth.Identity,
	auth.Attributes) bool)) error {
	var all sync.WaitGroup
	defer all.Wait()
	for _, t := range r.Tables() {
		all.Go(func() { r.follow(ctx, t) })
		if t.proves {
			var sooner <-chan struct{}
			if len(r.together(t)) > 1 {
				sooner = t.sooner
			}
			all.Go(func() { r.repeat(ctx, t.resource.String(), t.prove, sooner) })
		}
	}
	if r.keys != nil {
		all.Go(func() { r.repeat(ctx, "keys", r.fetchKeys, nil) })
	}
	for range jobsAtOnce {
		all.Go(func() { r.work(ctx) })
	}
	r.checkAffected(ctx, check)
	return nil
}

// follow mirrors a table, and tries again while upstream forbids that.
func (r *LocalAuthorizer) follow(ctx context.Context, t *PermissionTable) {
	for ctx.Err() == nil {
		run, cancel := context.WithCancelCause(ctx)
		r.mu.Lock()
		t.restart = func() { cancel(errRewritten) }
		r.mu.Unlock()
		err := r.opts.Follow(run, t)
		again := errors.Is(context.Cause(run), errRewritten)
		cancel(nil)
		t.forget()
		if ctx.Err() != nil || again {
			continue
		}
		r.refused(t, err)
		r.await(ctx, nil, r.clock.Now().Add(forbiddenRetry))
	}
}

// refused says once that a resource may not be watched.
func (r *LocalAuthorizer) refused(t *PermissionTable, err error) {
	r.metrics.unwatched.WithLabelValues(t.resource.String()).Set(1)
	r.mu.Lock()
	said := t.forbidden
	t.forbidden = true
	r.mu.Unlock()
	if said {
		return
	}
	r.log.Warn("upstream does not let this be watched: "+
		"what is lost by its changes is found out by asking now and then alone",
		zap.Stringer("resource", t.resource), zap.Error(err))
}

// repeat proves something again and again, and sooner on request.
func (r *LocalAuthorizer) repeat(ctx context.Context, what string, prove func(context.Context) error,
	sooner <-chan struct{}) {
	for failing := false; ; {
		began := r.clock.Now()
		timed, cancel := context.WithTimeout(ctx, proofTimeout)
		err := prove(timed)
		cancel()
		if ctx.Err() != nil {
			return
		}
		result, next := "proven", began.Add(proveEvery)
		if err != nil {
			result, next = "failed", r.clock.Now().Add(proveRetry)
		}
		r.metrics.proofs.WithLabelValues(what, result).Inc()
		switch {
		case err == nil:
			failing = false
		case !failing && !errors.Is(err, errNotMirrored):
			failing = true
			r.log.Info("nothing is decided here by what cannot be proven: upstream decides instead",
				zap.String("resource", what), zap.Error(err))
		}
		r.await(ctx, nil, began.Add(proveLeast))
		r.await(ctx, sooner, next)
	}
}

// work carries out checks.
func (r *LocalAuthorizer) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-r.jobs:
			job(ctx)
		}
	}
}

// submit queues a check for the workers; false: too many wait already.
func (r *LocalAuthorizer) submit(job func(context.Context)) bool {
	select {
	case r.jobs <- job:
		return true
	default:
		return false
	}
}

// checkAffected has the watches of affected subjects checked: at once, and again when upstream has
// received the change. Bursts are one.
func (r *LocalAuthorizer) checkAffected(ctx context.Context, check func(func(*auth.Identity, auth.Attributes) bool)) {
	var again rechecks
	for ctx.Err() == nil {
		who, now := r.take(), r.clock.Now()
		if !who.empty() {
			again.plan(who, now)
		}
		who.merge(again.take(now))
		if !who.empty() {
			r.metrics.changes.Inc()
			check(who.concerns)
			r.await(ctx, nil, r.clock.Now().Add(checkMinInterval))
		}
		r.await(ctx, r.wakeCh, again.next())
	}
}

// take returns those affected since it was called last.
func (r *LocalAuthorizer) take() *affectedSubjects {
	r.mu.Lock()
	defer r.mu.Unlock()
	who := r.pending
	r.pending = newAffectedSubjects()
	return who
}

// await waits until there is news, or until the given time, if any.
func (r *LocalAuthorizer) await(ctx context.Context, news <-chan struct{}, until time.Time) {
	var due <-chan time.Time
	if !until.IsZero() {
		timer := r.clock.NewTimer(until.Sub(r.clock.Now()))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-news:
	case <-due:
	}
}

// affectsLocked notes subjects that may have lost something.
func (r *LocalAuthorizer) affectsLocked(subjects ...subject) {
	r.pending.add(subjects...)
	r.notify()
}

func (r *LocalAuthorizer) notify() {
	select {
	case r.wakeCh <- struct{}{}:
	default:
	}
}

// roleChanged notes a change of a Role. A subject that gains a role loses nothing.
func (r *LocalAuthorizer) roleChanged(key string, before, after any) {
	o := splitKey(key)
	r.roleNoted(roleRef{namespace: o.namespace, name: o.name}, before, after)
}

// clusterRoleChanged notes a change of a ClusterRole.
func (r *LocalAuthorizer) clusterRoleChanged(key string, before, after any) {
	r.roleNoted(roleRef{cluster: true, name: key}, before, after)
}

func (r *LocalAuthorizer) roleNoted(ref roleRef, before, after any) {
	now, _ := after.(*role)
	r.rbac.setRole(ref, now)
	if before == nil {
		return
	}
	for b := range r.rbac.bound[ref] {
		r.affectsLocked(b.subjects...)
	}
}

// bindingChanged notes a change of a binding of either kind. New subjects may have gained
// something, and lost nothing.
func (r *LocalAuthorizer) bindingChanged(_ string, before, after any) {
	was, _ := before.(*binding)
	is, _ := after.(*binding)
	r.rbac.setBinding(was, is)
	if was != nil {
		r.affectsLocked(was.subjects...)
	}
}

// accountChanged notes a change of a service account. A token is for one by its uid.
func (r *LocalAuthorizer) accountChanged(key string, before, after any) {
	if !ended(before, after) {
		return
	}
	o := splitKey(key)
	r.affectsLocked(subject{name: serviceAccountName(o.namespace, o.name)})
}

// podChanged notes a change of a pod.
func (r *LocalAuthorizer) podChanged(_ string, before, after any) {
	if !ended(before, after) {
		return
	}
	r.pending.addPod(before.(existing).uid)
	r.notify()
}

// ended reports that what was there is there no more.
func ended(before, after any) bool {
	was, there := before.(existing)
	is, still := after.(existing)
	return there && !(still && is.uid == was.uid)
}

// Access implements auth.LocalDecider.
func (r *LocalAuthorizer) Access(
	review auth.ReviewFunc[auth.ReviewRequest, auth.AccessStatus],
) auth.DecideFunc[auth.ReviewRequest, auth.AccessStatus] {
	if !r.opts.RBAC {
		return nil
	}
	l := newLocal(reviewOfAccess, r, review, r.access, func(_, there auth.AccessStatus) bool {
		return auth.VerdictOf(there) != auth.Denied
	})
	l.waits = r.waits
	return l.ask
}

// access allows what rules allow, by tables that are proven. It never denies.
func (r *LocalAuthorizer) access(_ auth.Digest,
	q auth.ReviewRequest) (auth.Answer[auth.AccessStatus], bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, proven := r.provenLocked(r.rbacTables()...)
	var at time.Time
	if !proven || !r.rbac.allows(q.Identity, &q.Attributes, func(b *binding) (held bool) {
		at, held = r.togetherLocked(b)
		return held
	}) {
		return auth.Answer[auth.AccessStatus]{}, false
	}
	return auth.Answer[auth.AccessStatus]{
		Value: auth.AccessStatus{Allowed: true}, At: at,
	}, true
}

// waits reports that something would be allowed by a role and a binding, were they known to have
// been together.
func (r *LocalAuthorizer) waits(q auth.ReviewRequest) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.rbac.allows(q.Identity, &q.Attributes, func(b *binding) bool {
		_, held := r.togetherLocked(b)
		return !held
	})
}
