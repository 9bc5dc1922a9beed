package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
	"spillway/internal/serve"
)

// newAccess makes what finds out who may have what; nil if everybody may have everything.
func newAccess(own *auth.Reviewer, o *options, registry prometheus.Registerer, log *zap.Logger) (*serve.Access, error) {
	if o.insecureAllowAll {
		return nil, nil
	}
	metrics := auth.NewMetrics(registry)
	who := auth.AuthenticatorOptions{Reviewer: own, Audiences: o.apiAudiences, Metrics: metrics}
	if o.clientCAFile != "" {
		authority, err := auth.NewAuthority(o.clientCAFile, clock.RealClock{}, log)
		if err != nil {
			return nil, err
		}
		who.ClientCA = authority
	}
	if o.frontProxy.caFile != "" {
		authority, err := auth.NewAuthority(o.frontProxy.caFile, clock.RealClock{}, log)
		if err != nil {
			return nil, err
		}
		who.FrontProxy = o.frontProxy.of(authority)
	}
	authenticator := auth.NewAuthenticator(who)
	authorizer := auth.NewAuthorizer(auth.AuthorizerOptions{Reviewer: own, Metrics: metrics})
	return &serve.Access{
		Authenticator: authenticator,
		Authorizer:    authorizer,
		Reauthorizer: auth.NewReauthorizer(auth.ReauthorizerOptions{
			Authenticator: authenticator, Authorizer: authorizer, Sweep: o.reauthSweep, Metrics: metrics,
		}),
	}, nil
}

// frontProxy is which proxy is believed about users.
type frontProxy struct {
	caFile        string // with the certificates that vouch for it; empty: there is none
	allowedNames  []string
	nameHeaders   []string
	uidHeaders    []string
	groupHeaders  []string
	extraPrefixes []string
}

func (f *frontProxy) of(authority *auth.Authority) *auth.FrontProxy {
	return &auth.FrontProxy{
		Authority: authority, AllowedNames: f.allowedNames,
		NameHeaders: f.nameHeaders, UIDHeaders: f.uidHeaders, GroupHeaders: f.groupHeaders, ExtraPrefixes: f.extraPrefixes,
	}
}

// claims reports whether a header, by its canonical key, is one in which the front proxy vouches for users: it is never passed on.
func (f *frontProxy) claims(name string) bool { return f.of(nil).Reads(name) }
