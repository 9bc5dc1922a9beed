package main

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
	"spillway/internal/auth/rbac"
	"spillway/internal/auth/reauth"
	"spillway/internal/config"
	"spillway/internal/object"
	"spillway/internal/rotation"
	"spillway/internal/serve"
	"spillway/internal/upstream"
	"spillway/internal/upstream/probes"
)

// accessBuilder makes the parts of an access.
type accessBuilder struct {
	settings  *config.Settings
	client    *upstream.Client
	own, bare http.RoundTripper // with the proxy's credentials, and without any
	followed  *rotation.FollowedFiles
	registry  prometheus.Registerer
	log       *zap.Logger

	metrics *accessMetrics // by newAccess
}

// accessMetrics are those of all listeners.
type accessMetrics struct {
	requests  *auth.Metrics
	checks    *reauth.CheckMetrics
	decisions *rbac.DecisionMetrics
}

func newAccessMetrics(r prometheus.Registerer) *accessMetrics {
	return &accessMetrics{auth.NewMetrics(r), reauth.NewMetrics(r), rbac.NewMetrics(r)}
}

// newRights makes what watches rights, and decides by them as far as the settings say; nil: nothing
// needs them. The LocalAuthorizer logs once which rights upstream does not let it watch. The
// reflector would log that at each attempt, so its log has errors alone.
func (b *accessBuilder) newRights(reviewer *auth.Reviewer) *rbac.LocalAuthorizer {
	o := b.settings
	if !o.WatchesRights() {
		return nil
	}
	tokens := rbac.TokenMode(o.LocalTokens)
	if o.LocalTokens == config.LocalTokensNone {
		tokens = rbac.TokensNone
	}
	errorsOnly := b.log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
	return rbac.NewLocalAuthorizer(rbac.LocalAuthorizerOptions{
		Follow: func(ctx context.Context, t *rbac.PermissionTable) error {
			return b.client.Follow(ctx, errorsOnly, t.Resource(), t, upstream.WithPromised(t.Through))
		},
		ProveThrough: func(ctx context.Context, r *object.Resource, from uint64) (last, reached uint64, err error) {
			return probes.New(b.client, r).ProveThrough(ctx, from)
		},
		RBAC: o.LocalRBAC, Tokens: tokens, Reviewer: reviewer, Metrics: b.metrics.decisions, Log: b.log,
	})
}

// newRemoteAccess makes what authenticates and authorizes clients that are not of the same pod.
// rights may be nil.
func (b *accessBuilder) newRemoteAccess(reviewer *auth.Reviewer, rights *rbac.LocalAuthorizer) (*serve.Access, error) {
	o := b.settings
	made := auth.AuthenticatorOptions{Reviewer: reviewer, Audiences: o.APIAudiences, Metrics: b.metrics.requests}
	if rights != nil { // a nil *LocalAuthorizer would be a LocalDecider
		made.Local = rights
	}
	var err error
	if o.ClientCAFile != "" {
		if made.ClientCA, err = b.newAuthority("client-ca-file", o.ClientCAFile); err != nil {
			return nil, err
		}
	}
	if o.FrontProxyCAFile != "" {
		made.FrontProxy = frontProxy(o)
		if made.FrontProxy.Authority, err = b.newAuthority("requestheader-client-ca-file", o.FrontProxyCAFile); err != nil {
			return nil, err
		}
		if made.ClientCA != nil && len(o.FrontProxyNames) == 0 && made.FrontProxy.Authority.Shares(made.ClientCA) {
			return nil, o.Refuse("requestheader-client-ca-file", o.FrontProxyCAFile,
				"has an authority of --client-ca-file in it, so that every client could claim to be any user: name the proxy in "+
					"--requestheader-allowed-names, or give it an authority of its own")
		}
	}
	return b.newServeAccess(made), nil
}

// newAuthority reads the file of a flag, and follows it.
func (b *accessBuilder) newAuthority(flag, file string) (*auth.Authority, error) {
	authority, err := auth.NewAuthority(file, clock.RealClock{}, b.log)
	if err != nil {
		return nil, b.settings.Refuse(flag, file, "cannot be used: "+config.Cause(err))
	}
	b.followed.Add(authority.States)
	return authority, nil
}

// frontProxy is the proxy that vouches for users, without the authority of its certificate.
func frontProxy(o *config.Settings) *auth.FrontProxy {
	return &auth.FrontProxy{
		AllowedNames: o.FrontProxyNames, NameHeaders: o.FrontProxyNameHeaders, UIDHeaders: o.FrontProxyUIDHeaders,
		GroupHeaders: o.FrontProxyGroupHeaders, ExtraPrefixes: o.FrontProxyExtraPrefixes,
	}
}

// newServeAccess makes what authenticates, authorizes and reauthorizes clients by o.Reviewer, as
// far as o.Local does not decide.
func (b *accessBuilder) newServeAccess(o auth.AuthenticatorOptions) *serve.Access {
	authenticator := auth.NewAuthenticator(o)
	authorizer := auth.NewAuthorizer(auth.AuthorizerOptions{
		Reviewer: o.Reviewer, Local: o.Local, Metrics: b.metrics.requests,
	})
	return &serve.Access{
		Authenticator: authenticator,
		Authorizer:    authorizer,
		Reauthorizer: reauth.NewReauthorizer(reauth.ReauthorizerOptions{
			Authenticator: authenticator, Authorizer: authorizer, Sweep: b.settings.ReauthorizationInterval,
			Metrics: b.metrics.checks, Log: b.log,
		}),
	}
}
