package config

import (
	"fmt"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/net/http/httpguts"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
	"spillway/internal/auth/reauth"
	"spillway/internal/listen"
	"spillway/internal/rotation"
)

// validateAccess refuses what would give access to users that must not have it, and what would keep
// out users that may.
func (o *Settings) validateAccess() error {
	if o.InsecureAllowAll {
		if address, err := listen.SplitAddress(o.ListenTLS); err == nil && !listen.IsLoopback(address.Host) {
			return o.Refuse("insecure-allow-all", "true", "is for experiments on this machine, but --listen-tls is "+o.ListenTLS+
				", which others reach: take a loopback address such as 127.0.0.1:6443, or do without it")
		}
	}
	if o.ReauthorizationInterval < reauth.MinSweep {
		return o.Refuse("reauthorization-interval", o.ReauthorizationInterval.String(),
			"must be at least "+reauth.MinSweep.String())
	}
	for _, audience := range o.APIAudiences {
		if audience == "" {
			return o.Refuse("api-audiences", strings.Join(o.APIAudiences, ","), "must not have an empty audience in it")
		}
	}
	if err := o.validateRights(); err != nil {
		return err
	}
	clients, err := o.validateAuthority("client-ca-file", o.ClientCAFile)
	if err != nil {
		return err
	}
	fronts, err := o.validateAuthority("requestheader-client-ca-file", o.FrontProxy.CAFile)
	if err != nil {
		return err
	}
	if clients != nil && fronts != nil && len(o.FrontProxy.AllowedNames) == 0 && fronts.Shares(clients) {
		return o.Refuse("requestheader-client-ca-file", o.FrontProxy.CAFile,
			"has an authority of --client-ca-file in it, so that every client could "+
				"claim to be any user: name the proxy in --requestheader-allowed-names, or give it an authority of its own")
	}
	if err := o.validateFrontProxy(); err != nil {
		return err
	}
	return o.validateImpersonation()
}

// validateRights refuses to watch rights for nothing, and to verify tokens without knowing their
// audiences.
func (o *Settings) validateRights() error {
	for _, f := range []struct {
		flag, value string
		on          bool
	}{
		{"watch-rbac", "true", o.WatchRBAC}, {"authorization-local-rbac", "true", o.LocalRBAC},
		{"authentication-local-jwks", o.LocalTokens, o.LocalTokens != LocalTokensNone},
	} {
		if f.on && o.InsecureAllowAll {
			return o.Refuse(f.flag, f.value, "has no meaning with --insecure-allow-all, which authenticates no client")
		}
	}
	if o.LocalTokens != LocalTokensNone && len(o.APIAudiences) == 0 {
		return o.Refuse("authentication-local-jwks", o.LocalTokens,
			"needs --api-audiences: which audiences the API server takes for its own cannot be "+
				"seen from outside")
	}
	return nil
}

func (o *Settings) validateImpersonation() error {
	switch file := o.ImpersonationKubeconfig; {
	case !o.ImpersonateClientCerts && file == "":
		return nil
	case !o.ImpersonateClientCerts:
		return o.Refuse("impersonation-kubeconfig", file, "has a meaning only with --impersonate-client-certs")
	case file == "":
		return o.Refuse("impersonate-client-certs", "true",
			"needs --impersonation-kubeconfig: a user that may impersonate, and nothing else")
	case o.ClientCAFile == "" && o.FrontProxy.CAFile == "":
		return o.Refuse("impersonate-client-certs", "true",
			"has a meaning only with --client-ca-file or --requestheader-client-ca-file")
	}
	if _, err := rotation.ReadFile(o.ImpersonationKubeconfig); err != nil {
		return o.Refuse("impersonation-kubeconfig", o.ImpersonationKubeconfig, "cannot be read: "+Cause(err))
	}
	return nil
}

// validateAuthority reads a file of certificates that vouch for clients; nil if there is none.
func (o *Settings) validateAuthority(flag, file string) (*auth.Authority, error) {
	switch {
	case file == "":
		return nil, nil
	case o.ListenTLS == "" && !o.MetricsTLS:
		return nil, o.Refuse(flag, file, "has a meaning only with --listen-tls or --metrics-tls")
	case o.InsecureAllowAll:
		return nil, o.Refuse(flag, file, "has no meaning with --insecure-allow-all, which authenticates no client")
	}
	authority, err := auth.NewAuthority(file, clock.RealClock{}, zap.NewNop())
	if err != nil {
		return nil, o.Refuse(flag, file, "cannot be used: "+Cause(err))
	}
	return authority, nil
}

func (o *Settings) validateFrontProxy() error {
	p := &o.FrontProxy
	if p.CAFile == "" {
		if len(p.AllowedNames) > 0 {
			return o.Refuse("requestheader-allowed-names", strings.Join(p.AllowedNames, ","),
				"has a meaning only with --requestheader-client-ca-file")
		}
		return nil
	}
	if len(p.NameHeaders) == 0 {
		return o.Refuse("requestheader-username-headers", "", "must name a header, such as X-Remote-User")
	}
	for flag, names := range map[string][]string{
		"requestheader-username-headers": p.NameHeaders, "requestheader-uid-headers": p.UIDHeaders,
		"requestheader-group-headers": p.GroupHeaders, "requestheader-extra-headers-prefix": p.ExtraPrefixes,
	} {
		for _, name := range names {
			if !httpguts.ValidHeaderFieldName(name) {
				return o.Refuse(flag, name, fmt.Sprintf("%q cannot be the name of a header", name))
			}
		}
	}
	return nil
}

// WatchesRights reports that anything needs rights to be watched.
func (o *Settings) WatchesRights() bool {
	return o.WatchRBAC || o.LocalRBAC || o.LocalTokens != LocalTokensNone
}

// FrontProxyOptions is which proxy is believed about users.
type FrontProxyOptions struct {
	CAFile        string // with the certificates that vouch for it; empty: there is none
	AllowedNames  []string
	NameHeaders   []string
	UIDHeaders    []string
	GroupHeaders  []string
	ExtraPrefixes []string
}

// Of is the front proxy whose certificate authority vouches for.
func (f *FrontProxyOptions) Of(authority *auth.Authority) *auth.FrontProxy {
	return &auth.FrontProxy{
		Authority: authority, AllowedNames: f.AllowedNames,
		NameHeaders: f.NameHeaders, UIDHeaders: f.UIDHeaders, GroupHeaders: f.GroupHeaders, ExtraPrefixes: f.ExtraPrefixes,
	}
}

// Claims reports whether a header, by its canonical key, is one in which the front proxy vouches
// for users: it is never passed on.
func (f *FrontProxyOptions) Claims(name string) bool { return f.Of(nil).Reads(name) }
