package main

import (
	"context"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"spillway/internal/auth"
	"spillway/internal/auth/rbac"
	"spillway/internal/auth/reauth"
	"spillway/internal/config"
	"spillway/internal/serve"
	"spillway/internal/upstream"
	"spillway/internal/watchdog"
)

// access is what authenticates and authorizes the clients of the listeners.
type access struct {
	builder *accessBuilder

	// tls and plain are of the listeners, and may be the same; nil: every client may have everything.
	tls, plain *serve.Access
	// account is tls, plain or both where these serve the proxy's own service account alone, and empty
	// until begin; nil: neither does.
	account *serve.Access
	rights  *rbac.LocalAuthorizer // nil: they are not watched

	// reviewer sends reviews; nil: every client may have everything.
	reviewer *auth.Reviewer
	// accountReviewer sends those of account; nil until begin.
	accountReviewer atomic.Pointer[auth.Reviewer]
}

// newAccess makes the access that the settings of b describe.
func newAccess(b *accessBuilder) (*access, error) {
	if b.settings.InsecureAllowAll {
		return &access{}, nil
	}
	b.metrics = newAccessMetrics(b.registry)
	reviewer := auth.NewReviewer(b.client.Base(), b.own, b.log)
	rights := b.newRights(reviewer)
	others, err := b.newRemoteAccess(reviewer, rights)
	if err != nil {
		return nil, err
	}
	a := &access{builder: b, tls: others, plain: others, rights: rights, reviewer: reviewer}
	registerReviewMetrics(b.registry, a.refusedReviews)
	isPlainForAccount := b.settings.ListenIdentity == config.IdentityPodToken
	isTLSForAccount := b.settings.SidecarDir != ""
	if isPlainForAccount || isTLSForAccount {
		a.account = &serve.Access{}
	}
	if isPlainForAccount {
		a.plain = a.account
	}
	if isTLSForAccount {
		a.tls = a.account
	}
	return a, nil
}

// begin finds out from upstream which account account is for. It is called before any request is
// answered; after an error it may be called again.
func (a *access) begin(ctx context.Context) error {
	if a.account == nil {
		return nil
	}
	b := a.builder
	owner, err := b.client.ServiceAccount(ctx)
	switch {
	case err == nil:
	case b.settings.SidecarDir != "":
		return refuseFor(b.settings, "sidecar-dir", b.settings.SidecarDir, err)
	default:
		return refuseFor(b.settings, "listen-identity", b.settings.ListenIdentity, err)
	}
	reviewer := auth.NewSelfReviewer(a.reviewer, b.bare, owner)
	a.accountReviewer.Store(reviewer)
	*a.account = *b.newServeAccess(auth.AuthenticatorOptions{Reviewer: reviewer, Metrics: b.metrics.requests})
	a.account.Owner = owner
	return nil
}

// remote authenticates and authorizes remote users of the metrics listener; nil: there are none.
func (a *access) remote() func() (*auth.Authenticator, *auth.Authorizer) {
	if a.tls == nil {
		return nil
	}
	return func() (*auth.Authenticator, *auth.Authorizer) { return a.tls.Authenticator, a.tls.Authorizer }
}

// run reviews running watches again until ctx ends.
func (a *access) run(ctx context.Context, clock *watchdog.Monitor) error {
	var group errgroup.Group
	all := a.reauthorizers()
	for i, one := range all {
		watched := clock.Watch(watchdog.Reauthorizer, strconv.Itoa(i), reauthorizerTimeout, one.Progress)
		group.Go(func() error {
			defer watched.End()
			return one.Run(ctx)
		})
	}
	if a.rights != nil {
		group.Go(func() error {
			return a.rights.Run(ctx, func(concerns func(*auth.Identity, auth.Attributes) bool) {
				for _, one := range all {
					one.Check(concerns)
				}
			})
		})
	}
	return group.Wait()
}

// reauthorizers are those of all listeners, each once.
func (a *access) reauthorizers() (all []*reauth.Reauthorizer) {
	if a.tls != nil {
		all = append(all, a.tls.Reauthorizer)
	}
	if a.plain != nil && a.plain != a.tls {
		all = append(all, a.plain.Reauthorizer)
	}
	return all
}

// refuseFor refuses the value of a flag for what upstream says of it. An upstream that is
// unreachable says nothing of it.
func refuseFor(o *config.Settings, flag, value string, err error) error {
	if upstream.IsUnavailable(err) {
		return err
	}
	return o.Refuse(flag, value, err.Error())
}
