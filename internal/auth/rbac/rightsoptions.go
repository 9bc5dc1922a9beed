package rbac

import (
	"context"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
	"spillway/internal/object"
)

// TokensKept says which service accounts' tokens may be found good without asking upstream.
type TokensKept string

// The choices.
const (
	TokensNone TokensKept = ""
	// TokensUnbound: those that are bound to nothing but their service account.
	TokensUnbound TokensKept = "unbound"
	// TokensPods: those that are bound to a pod, too. Every pod of the cluster is watched for that.
	TokensPods TokensKept = "pods"
)

// RightsOptions configure Rights.
type RightsOptions struct {
	// Follow mirrors a table's resource into it until ctx ends, or returns the error with which
	// upstream refuses that.
	Follow func(ctx context.Context, t *RightsTable) error
	// Through requests upstream's version. A mirror that has reached last holds everything that was
	// acknowledged before the call; nothing happened between last and reached. A reached below from
	// means that upstream is behind a version that it has shown before. RBAC and Tokens need it.
	Through func(ctx context.Context, r *object.Resource, from uint64) (last, reached uint64, err error)
	// RBAC lets an Authorizer decide by roles and bindings.
	RBAC bool
	// Tokens lets an Authenticator decide by signatures, service accounts and pods. It needs a
	// Reviewer, which fetches the keys.
	Tokens   TokensKept
	Reviewer *auth.Reviewer
	Clock    clock.Clock      // nil: the real one
	Random   func() float64   // in [0, 1), chooses what is checked; nil: math/rand's
	Metrics  *DecisionMetrics // nil: nothing is registered
	Log      *zap.Logger      // nil: nowhere
}
