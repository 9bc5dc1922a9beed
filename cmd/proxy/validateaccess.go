package main

import (
	"fmt"
	"os"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/net/http/httpguts"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
	"spillway/internal/listen"
)

// validateAccess refuses what would let in who does not belong, and what would keep out who does.
func (o *options) validateAccess() error {
	if o.insecureAllowAll {
		if address, err := listen.SplitAddress(o.listenTLS); err == nil && !listen.IsLoopback(address.Host) {
			return o.refuse("insecure-allow-all", "true", "is for experiments on this machine, but --listen-tls is "+o.listenTLS+
				", which others reach: take a loopback address such as 127.0.0.1:6443, or do without it")
		}
	}
	if o.reauthSweep < auth.MinSweep {
		return o.refuse("reauth-sweep", o.reauthSweep.String(), "must be at least "+auth.MinSweep.String())
	}
	for _, audience := range o.apiAudiences {
		if audience == "" {
			return o.refuse("api-audiences", strings.Join(o.apiAudiences, ","), "must not have an empty audience in it")
		}
	}
	if err := o.validateRights(); err != nil {
		return err
	}
	clients, err := o.validateAuthority("client-ca-file", o.clientCAFile)
	if err != nil {
		return err
	}
	fronts, err := o.validateAuthority("requestheader-client-ca-file", o.frontProxy.caFile)
	if err != nil {
		return err
	}
	if clients != nil && fronts != nil && len(o.frontProxy.allowedNames) == 0 && fronts.Shares(clients) {
		return o.refuse("requestheader-client-ca-file", o.frontProxy.caFile, "has an authority of --client-ca-file in it, so that every client could "+
			"say that he is somebody else: name the proxy in --requestheader-allowed-names, or give it an authority of its own")
	}
	if err := o.validateFrontProxy(); err != nil {
		return err
	}
	return o.validateImpersonation()
}

// validateRights refuses to watch rights for nothing, and to take tokens for whomever they may be.
func (o *options) validateRights() error {
	for _, f := range []struct {
		flag, value string
		on          bool
	}{
		{"watch-rights", "true", o.watchRights}, {"authorization-local-rbac", "true", o.localRBAC},
		{"authentication-local-jwks", o.localTokens, o.localTokens != localTokensNone},
	} {
		if f.on && o.insecureAllowAll {
			return o.refuse(f.flag, f.value, "has no meaning with --insecure-allow-all, which asks nobody who he is")
		}
	}
	if o.localTokens != localTokensNone && len(o.apiAudiences) == 0 {
		return o.refuse("authentication-local-jwks", o.localTokens, "needs --api-audiences: which audiences the API server takes for its own cannot be "+
			"seen from outside")
	}
	return nil
}

func (o *options) validateImpersonation() error {
	switch file := o.impersonationKubeconfig; {
	case !o.impersonateClientCerts && file == "":
		return nil
	case !o.impersonateClientCerts:
		return o.refuse("impersonation-kubeconfig", file, "has a meaning only with --impersonate-client-certs")
	case file == "":
		return o.refuse("impersonate-client-certs", "true", "needs --impersonation-kubeconfig: somebody who may impersonate, and nothing else")
	case o.clientCAFile == "" && o.frontProxy.caFile == "":
		return o.refuse("impersonate-client-certs", "true", "has a meaning only with --client-ca-file or --requestheader-client-ca-file")
	}
	if _, err := os.ReadFile(o.impersonationKubeconfig); err != nil {
		return o.refuse("impersonation-kubeconfig", o.impersonationKubeconfig, "cannot be read: "+cause(err))
	}
	return nil
}

// validateAuthority reads a file of certificates that vouch for clients; nil if there is none.
func (o *options) validateAuthority(flag, file string) (*auth.Authority, error) {
	switch {
	case file == "":
		return nil, nil
	case o.listenTLS == "" && !o.metricsTLS:
		return nil, o.refuse(flag, file, "has a meaning only with --listen-tls or --metrics-tls")
	case o.insecureAllowAll:
		return nil, o.refuse(flag, file, "has no meaning with --insecure-allow-all, which asks nobody who he is")
	}
	authority, err := auth.NewAuthority(file, clock.RealClock{}, zap.NewNop())
	if err != nil {
		return nil, o.refuse(flag, file, "cannot be used: "+cause(err))
	}
	return authority, nil
}

func (o *options) validateFrontProxy() error {
	p := &o.frontProxy
	if p.caFile == "" {
		if len(p.allowedNames) > 0 {
			return o.refuse("requestheader-allowed-names", strings.Join(p.allowedNames, ","), "has a meaning only with --requestheader-client-ca-file")
		}
		return nil
	}
	if len(p.nameHeaders) == 0 {
		return o.refuse("requestheader-username-headers", "", "must name a header, such as X-Remote-User")
	}
	for flag, names := range map[string][]string{
		"requestheader-username-headers": p.nameHeaders, "requestheader-uid-headers": p.uidHeaders,
		"requestheader-group-headers": p.groupHeaders, "requestheader-extra-headers-prefix": p.extraPrefixes,
	} {
		for _, name := range names {
			if !httpguts.ValidHeaderFieldName(name) {
				return o.refuse(flag, name, fmt.Sprintf("%q cannot be the name of a header", name))
			}
		}
	}
	return nil
}

// watchesRights reports that anything needs rights to be watched.
func (o *options) watchesRights() bool {
	return o.watchRights || o.localRBAC || o.localTokens != localTokensNone
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
