// Package rbac decides questions about permissions and tokens by the API server's state, without a
// review. It also finds the watches that a change of that state may have ended.
//
// A LocalAuthorizer mirrors roles, bindings, service accounts and, if configured, pods, each in a
// PermissionTable. It fetches the keys that the API server signs tokens with, and implements
// auth.LocalDecider.
//
// Invariant: it only ever allows, and only by tables that are proven: the API server reported its
// version within auth.AnswerTTL, and the table has caught up with it. An open watch that has
// received nothing proves nothing. Nor does an informer's cache, whose age is not known. What is
// not allowed here is the API server's to decide, and a share of what is allowed is checked there.
//
// kube-apiserver's own RBAC authorizer is no module that could be imported, and reads its informers
// without checking their age.
package rbac

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
	"spillway/internal/object"
)

// TokenMode says which service accounts' tokens may be found valid without a review.
type TokenMode string

// The choices.
const (
	TokensNone TokenMode = ""
	// TokensUnbound: those that are bound to nothing but their service account.
	TokensUnbound TokenMode = "unbound"
	// TokensPods: those that are bound to a pod, too. Every pod of the cluster is watched for that.
	TokensPods TokenMode = "pods"
)

// LocalAuthorizerOptions configure a LocalAuthorizer.
type LocalAuthorizerOptions struct {
	// Follow mirrors a table's resource into it until ctx ends, or returns the error with which the
	// API server refuses that.
	Follow func(ctx context.Context, t *PermissionTable) error
	// ProveThrough requests the API server's version. A mirror that has reached last holds everything
	// that was acknowledged before the call; nothing happened between last and reached. A reached
	// below from means that the API server is behind a version that it has shown before. RBAC and
	// Tokens need it.
	ProveThrough func(ctx context.Context, r *object.Resource, from uint64) (last, reached uint64, err error)
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
// service accounts. That serves two purposes.
//
// Watches that may have lost something by a change are reviewed at once (Reauthorizer.Check). That
// decides nothing by itself, and where the API server does not let these resources be watched, the
// sweep goes on alone.
//
// And it may decide, where the operator says so: about permissions by roles and bindings, about
// tokens by their signatures and the objects that they are bound to. A decision is as old as the
// oldest of the proofs that it rests on, which counts from when its question was sent.
type LocalAuthorizer struct {
	// Static after construction.
	opts   LocalAuthorizerOptions
	log    *zap.Logger
	wakeCh chan struct{}              // holds one: pending has grown
	jobs   chan func(context.Context) // checks that wait for their turn

	tables
	// Guarded by the lock of the tables.
	index   *ruleIndex
	keys    keySet            // empty without Tokens
	pending *affectedSubjects // since the last check
}

const (
	// proofInterval is how long after the beginning of one proof the next one begins. It takes the API
	// server up to 1.7 s to answer (W-111), and that has to leave room within AnswerTTL for one that
	// fails.
	proofInterval      = 5 * time.Second
	proofRetryInterval = time.Second
	// proofMinInterval is the least time between the beginnings of two proofs.
	proofMinInterval = time.Second
	// proofTimeout bounds a proof.
	proofTimeout = 4 * time.Second
	// forbiddenRetryInterval is how soon to watch a table again that the API server forbids to watch.
	forbiddenRetryInterval = time.Minute
	// waitingChecksLimit and checkWorkers bound the checks that wait, and those that are under way.
	waitingChecksLimit = 16
	checkWorkers       = 2
)

// NewLocalAuthorizer returns a LocalAuthorizer that knows nothing until Run.
func NewLocalAuthorizer(o LocalAuthorizerOptions) *LocalAuthorizer {
	o.Clock, o.Log = cmp.Or(o.Clock, clock.Clock(clock.RealClock{})), cmp.Or(o.Log, zap.NewNop())
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	r := &LocalAuthorizer{
		opts: o, log: o.Log, index: newRuleIndex(), pending: newAffectedSubjects(),
		wakeCh: make(chan struct{}, 1), jobs: make(chan func(context.Context), waitingChecksLimit),
		tables: tables{clock: o.Clock, metrics: o.Metrics, proveThrough: o.ProveThrough},
	}
	all := &r.tables
	r.roles = newTable(all, rbacResource("roles", "Role", true), readRole, r.roleChangedLocked)
	r.clusterRoles = newTable(all, rbacResource("clusterroles", "ClusterRole", false), readRole,
		r.clusterRoleChangedLocked)
	r.roleBindings = newTable(all, rbacResource("rolebindings", "RoleBinding", true), readBinding, r.bindingChangedLocked)
	r.clusterRoleBindings = newTable(all, rbacResource("clusterrolebindings", "ClusterRoleBinding", false), readBinding,
		r.bindingChangedLocked)
	for _, t := range r.rbacTables() {
		t.needsProof, t.proveSooner = o.RBAC, make(chan struct{}, 1)
	}
	r.accounts = newTable(all, coreResource("serviceaccounts", "ServiceAccount"), readPresence, r.accountChangedLocked)
	r.accounts.needsProof = o.Tokens != TokensNone
	if o.Tokens == TokensPods {
		r.pods = newTable(all, coreResource("pods", "Pod"), readPresence, r.podChangedLocked)
		r.pods.needsProof = true
	}
	return r
}

func rbacResource(resource, kind string, isNamespaced bool) *object.Resource {
	gvr := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
	return object.NewResource(gvr, kind, isNamespaced, true)
}

func coreResource(resource, kind string) *object.Resource {
	return object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: resource}, kind, true, true)
}

// Run watches until ctx ends, and returns when nothing is under way any more. check gets the
// subjects that may have lost something; it must return at once.
func (r *LocalAuthorizer) Run(ctx context.Context, check func(concerns func(*auth.Identity,
	auth.Attributes) bool)) error {
	var all sync.WaitGroup
	defer all.Wait()
	for _, t := range r.Tables() {
		all.Go(func() { r.follow(ctx, t) })
		if t.needsProof {
			all.Go(func() { r.proveRepeatedly(ctx, t.resource.String(), t.prove, t.proveSooner) })
		}
	}
	if r.opts.Tokens != TokensNone {
		all.Go(func() { r.proveRepeatedly(ctx, "keys", r.fetchKeys, nil) })
	}
	for range checkWorkers {
		all.Go(func() { r.runChecks(ctx) })
	}
	r.checkAffected(ctx, check)
	return nil
}

// follow mirrors a table, and tries again while the API server forbids that.
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
		r.noteForbidden(t, err)
		r.await(ctx, nil, r.clock.Now().Add(forbiddenRetryInterval))
	}
}

// noteForbidden says once that a resource may not be watched.
func (r *LocalAuthorizer) noteForbidden(t *PermissionTable, err error) {
	r.metrics.unwatched.WithLabelValues(t.resource.String()).Set(1)
	r.mu.Lock()
	isLogged := t.isForbidden
	t.isForbidden = true
	r.mu.Unlock()
	if isLogged {
		return
	}
	r.log.Warn("upstream does not let this be watched: "+
		"what is lost by its changes is found out by asking now and then alone",
		zap.Stringer("resource", t.resource), zap.Error(err))
}

// proveRepeatedly proves something at intervals, and sooner on request.
func (r *LocalAuthorizer) proveRepeatedly(ctx context.Context, what string, prove func(context.Context) error,
	sooner <-chan struct{}) {
	for isFailing := false; ; {
		began := r.clock.Now()
		timed, cancel := context.WithTimeout(ctx, proofTimeout)
		err := prove(timed)
		cancel()
		if ctx.Err() != nil {
			return
		}
		result, next := proofSucceeded, began.Add(proofInterval)
		if err != nil {
			result, next = proofFailed, r.clock.Now().Add(proofRetryInterval)
		}
		r.metrics.proofs.WithLabelValues(what, result).Inc()
		switch {
		case err == nil:
			isFailing = false
		case !isFailing && !errors.Is(err, errNotMirrored):
			isFailing = true
			r.log.Info("nothing is decided here by what cannot be proven: upstream decides instead",
				zap.String("resource", what), zap.Error(err))
		}
		r.await(ctx, nil, began.Add(proofMinInterval))
		r.await(ctx, sooner, next)
	}
}

// runChecks runs the checks that are submitted.
func (r *LocalAuthorizer) runChecks(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-r.jobs:
			job(ctx)
		}
	}
}

// submit queues a check of a decision; false: too many wait already.
func (r *LocalAuthorizer) submit(job func(context.Context)) bool {
	select {
	case r.jobs <- job:
		return true
	default:
		return false
	}
}

// checkAffected has the watches of affected subjects checked: at once, and again when the API
// server has received the change. A burst of changes is checked once.
func (r *LocalAuthorizer) checkAffected(ctx context.Context, check func(func(*auth.Identity, auth.Attributes) bool)) {
	var again rechecks
	for ctx.Err() == nil {
		affected, now := r.takePending(), r.clock.Now()
		if !affected.isEmpty() {
			again.plan(affected, now)
		}
		affected.merge(again.take(now))
		if !affected.isEmpty() {
			r.metrics.changes.Inc()
			check(affected.concerns)
			r.await(ctx, nil, r.clock.Now().Add(checkMinInterval))
		}
		r.await(ctx, r.wakeCh, again.next())
	}
}

// takePending returns the subjects that were affected since it was called last.
func (r *LocalAuthorizer) takePending() *affectedSubjects {
	r.mu.Lock()
	defer r.mu.Unlock()
	affected := r.pending
	r.pending = newAffectedSubjects()
	return affected
}

// await waits until there is news, until a time unless that is zero, or until ctx ends.
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

// provenSince reports that all that decides is proven, by questions that were sent after a time.
func (r *LocalAuthorizer) provenSince(after time.Time) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	deciding := slices.DeleteFunc(r.Tables(), func(t *PermissionTable) bool { return !t.needsProof })
	at, ok := r.provenLocked(deciding...)
	if r.opts.Tokens != TokensNone && r.keys.proven.Before(at) {
		at = r.keys.proven
	}
	return ok && at.After(after) && r.isRecent(at)
}
