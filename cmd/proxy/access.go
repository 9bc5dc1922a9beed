package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
	"spillway/internal/auth/rbac"
	"spillway/internal/auth/reauth"
	"spillway/internal/config"
	"spillway/internal/metric"
	"spillway/internal/object"
	"spillway/internal/rotation"
	"spillway/internal/serve"
	"spillway/internal/status"
	"spillway/internal/upstream"
	"spillway/internal/upstream/probes"
	"spillway/internal/watchdog"
)

// access is what authenticates and authorizes the clients of the listeners. An access is nil where
// every client may have everything, or there is no listener.
type access struct {
	tls, plain *serve.Access
	rights     *rbac.LocalAuthorizer // nil: they are not watched
	owned      func(context.Context) error
	// reviewer sends reviews; nil: every client may have everything. self sends those of a listener
	// that is for one account, once begin has found out which.
	reviewer *auth.Reviewer
	self     atomic.Pointer[auth.Reviewer]
}

// reviewFailures are why upstream does not answer reviews at present.
func (a *access) reviewFailures() (all []*auth.ReviewFailure) {
	for _, reviewer := range []*auth.Reviewer{a.reviewer, a.self.Load()} {
		if reviewer == nil {
			continue
		}
		if failure := reviewer.Failure(); failure != nil {
			all = append(all, failure)
		}
	}
	return all
}

// describeReviews is the part of /readyz?verbose about reviews. Nothing of it makes a replica
// unready: as a rule all replicas have the same API server and the same role.
func (a *access) describeReviews() (lines []string) {
	for _, failure := range a.reviewFailures() {
		since := time.Since(failure.Since).Round(time.Second)
		cause := status.OneLine(failure.Err.Error())
		if failure.Err.IsRefused() {
			lines = append(lines, fmt.Sprintf("[!]reviews refused for %s: %s; clients get nothing from memory: give Spillway "+
				"the rights of the cluster role system:auth-delegator", since, cause))
			continue
		}
		lines = append(lines, fmt.Sprintf("[!]reviews unanswered for %s: %s; clients that need one get nothing from memory",
			since, cause))
	}
	if len(lines) == 0 && a.reviewer != nil {
		lines = []string{"[+]reviews ok"}
	}
	return lines
}

// refusedReviews is 1 while upstream denies the proxy reviews, as an alert reads it.
func (a *access) refusedReviews() float64 {
	for _, failure := range a.reviewFailures() {
		if failure.Err.IsRefused() {
			return 1
		}
	}
	return 0
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

func newReviewMetrics(r prometheus.Registerer, denied func() float64) {
	metric.At(r).GaugeFunc("spillway_reviews_denied",
		"1 while the apiserver denies Spillway the TokenReviews or SubjectAccessReviews that its clients need.", denied)
}

// newAccess makes it. Reviews go upstream under own; bare is without credentials.
func newAccess(client *upstream.Client, own, bare http.RoundTripper, followed *rotation.Followed, o *config.Settings,
	registry prometheus.Registerer, log *zap.Logger) (*access, error) {
	if o.InsecureAllowAll {
		return &access{}, nil
	}
	metrics := newAccessMetrics(registry)
	reviewer := auth.NewReviewer(client.Base(), own, log)
	rights := newRights(client, reviewer, o, metrics.decisions, log)
	others, err := accessOf(reviewer, rights, followed, o, metrics, log)
	if err != nil {
		return nil, err
	}
	all := &access{tls: others, plain: others, rights: rights, reviewer: reviewer}
	newReviewMetrics(registry, all.refusedReviews)
	if o.ListenIdentity != config.IdentityPodToken && o.SidecarDir == "" {
		return all, nil
	}
	pod := &serve.Access{}
	if o.ListenIdentity == config.IdentityPodToken {
		all.plain = pod
	}
	if o.SidecarDir != "" {
		all.tls = pod
	}
	all.owned = func(ctx context.Context) error {
		owner, err := client.ServiceAccount(ctx)
		switch {
		case err == nil:
		case o.SidecarDir != "":
			return refuseFor(o, "sidecar-dir", o.SidecarDir, err)
		default:
			return refuseFor(o, "listen-identity", o.ListenIdentity, err)
		}
		selfReviewer := auth.NewSelfReviewer(reviewer, bare, owner)
		all.self.Store(selfReviewer)
		self := auth.AuthenticatorOptions{Reviewer: selfReviewer, Metrics: metrics.requests}
		*pod = *asking(self, o, metrics, log)
		pod.Owner = owner
		return nil
	}
	return all, nil
}

// begin finds out from upstream which account a listener is for, where the configuration does not
// say. It is called before any request is answered; after an error it may be called again.
func (a *access) begin(ctx context.Context) error {
	if a.owned == nil {
		return nil
	}
	return a.owned(ctx)
}

// remote authenticates and authorizes remote users of the metrics listener; nil: there are none.
func (a *access) remote() func() (*auth.Authenticator, *auth.Authorizer) {
	if a.tls == nil {
		return nil
	}
	return func() (*auth.Authenticator, *auth.Authorizer) { return a.tls.Authenticator, a.tls.Authorizer }
}

// run asks about running watches until ctx ends.
func (a *access) run(ctx context.Context, clock *watchdog.Monitor) error {
	var group errgroup.Group
	all := a.reauthorizers()
	for i, one := range all {
		watched := clock.Watch(watchdog.Reauthorizer, strconv.Itoa(i), reauthorizerLimit, one.Progress)
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
func (a *access) reauthorizers() []*reauth.Reauthorizer {
	var all []*reauth.Reauthorizer
	for i, one := range []*serve.Access{a.tls, a.plain} {
		if one != nil && (i == 0 || one != a.tls) {
			all = append(all, one.Reauthorizer)
		}
	}
	return all
}

// accessOf authenticates and authorizes clients that are not of the same pod.
func accessOf(reviewer *auth.Reviewer, rights *rbac.LocalAuthorizer, followed *rotation.Followed, o *config.Settings,
	metrics *accessMetrics, log *zap.Logger) (*serve.Access, error) {
	who := auth.AuthenticatorOptions{Reviewer: reviewer, Audiences: o.APIAudiences, Metrics: metrics.requests}
	if rights != nil { // a nil *Rights would be a LocalDecider
		who.Local = rights
	}
	authority := func(flag, file string) (*auth.Authority, error) {
		authority, err := auth.NewAuthority(file, clock.RealClock{}, log)
		if err != nil {
			return nil, o.Refuse(flag, file, "cannot be used: "+config.Cause(err))
		}
		followed.Add(authority.States)
		return authority, nil
	}
	var err error
	if o.ClientCAFile != "" {
		if who.ClientCA, err = authority("client-ca-file", o.ClientCAFile); err != nil {
			return nil, err
		}
	}
	if o.FrontProxyCAFile != "" {
		who.FrontProxy = frontProxy(o)
		if who.FrontProxy.Authority, err = authority("requestheader-client-ca-file", o.FrontProxyCAFile); err != nil {
			return nil, err
		}
		if who.ClientCA != nil && len(o.FrontProxyNames) == 0 && who.FrontProxy.Authority.Shares(who.ClientCA) {
			return nil, o.Refuse("requestheader-client-ca-file", o.FrontProxyCAFile,
				"has an authority of --client-ca-file in it, so that every client could claim to be any user: name the proxy in "+
					"--requestheader-allowed-names, or give it an authority of its own")
		}
	}
	return asking(who, o, metrics, log), nil
}

// frontProxy is the proxy that vouches for users, without the authority of its certificate.
func frontProxy(o *config.Settings) *auth.FrontProxy {
	return &auth.FrontProxy{
		AllowedNames: o.FrontProxyNames, NameHeaders: o.FrontProxyNameHeaders, UIDHeaders: o.FrontProxyUIDHeaders,
		GroupHeaders: o.FrontProxyGroupHeaders, ExtraPrefixes: o.FrontProxyExtraPrefixes,
	}
}

// asking asks all three questions by one reviewer, as far as rights do not answer them.
func asking(who auth.AuthenticatorOptions, o *config.Settings, metrics *accessMetrics, log *zap.Logger) *serve.Access {
	authenticator := auth.NewAuthenticator(who)
	authorizer := auth.NewAuthorizer(auth.AuthorizerOptions{Reviewer: who.Reviewer, Local: who.Local,
		Metrics: metrics.requests})
	return &serve.Access{
		Authenticator: authenticator,
		Authorizer:    authorizer,
		Reauthorizer: reauth.NewReauthorizer(reauth.ReauthorizerOptions{
			Authenticator: authenticator, Authorizer: authorizer, Sweep: o.ReauthorizationInterval,
			Metrics: metrics.checks, Log: log,
		}),
	}
}

// newRights makes what watches rights, and decides by them as far as the settings say; nil: nothing
// needs them. That upstream does not let something be watched is said by Rights, once, and not by
// the reflector at each attempt.
func newRights(client *upstream.Client, reviewer *auth.Reviewer, o *config.Settings, metrics *rbac.DecisionMetrics,
	log *zap.Logger) *rbac.LocalAuthorizer {
	if !o.WatchesRights() {
		return nil
	}
	kept := rbac.TokenMode(o.LocalTokens)
	if o.LocalTokens == config.LocalTokensNone {
		kept = rbac.TokensNone
	}
	quiet := log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
	return rbac.NewLocalAuthorizer(rbac.LocalAuthorizerOptions{
		Follow: func(ctx context.Context, t *rbac.PermissionTable) error {
			return client.Follow(ctx, quiet, t.Resource(), t, upstream.WithPromised(t.Through))
		},
		Through: func(ctx context.Context, r *object.Resource, from uint64) (last, reached uint64, err error) {
			return probes.New(client, r).ProveThrough(ctx, from)
		},
		RBAC: o.LocalRBAC, Tokens: kept, Reviewer: reviewer, Metrics: metrics, Log: log,
	})
}

// refuseFor refuses the value of a flag for what upstream says of it. That upstream is away says
// nothing of that.
func refuseFor(o *config.Settings, flag, value string, err error) error {
	if upstream.IsUnavailable(err) {
		return err
	}
	return o.Refuse(flag, value, err.Error())
}
