package main

import (
	"context"

	"go.uber.org/zap"

	"spillway/internal/auth"
	"spillway/internal/config"
	"spillway/internal/upstream"
)

// newRights makes what watches rights, and decides by them as far as it was told to; nil: nobody needs it. That upstream does not let
// something be watched is said by Rights, once, and not by the reflector each time that it is tried again.
func newRights(client *upstream.Client, reviewer *auth.Reviewer, o *config.Settings, metrics *auth.Metrics, log *zap.Logger) *auth.Rights {
	if !o.WatchesRights() {
		return nil
	}
	kept := auth.TokensKept(o.LocalTokens)
	if o.LocalTokens == config.LocalTokensNone {
		kept = auth.TokensNone
	}
	quiet := log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
	return auth.NewRights(auth.RightsOptions{
		Follow: func(ctx context.Context, t *auth.Table) error {
			return client.Follow(ctx, quiet, t.Resource(), t, upstream.WithPromised(t.Through))
		},
		Through: client.Through, RBAC: o.LocalRBAC, Tokens: kept, Reviewer: reviewer, Metrics: metrics, Log: log,
	})
}
