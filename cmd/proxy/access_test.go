package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"spillway/internal/auth"
	"spillway/internal/auth/authtest"
	"spillway/internal/auth/rbac"
	"spillway/internal/auth/reauth"
	"spillway/internal/config"
	"spillway/internal/fakeapiserver"
	"spillway/internal/logging"
	"spillway/internal/rotation"
)

// Rights are watched for whatever needs them, and for nothing else.
func TestRightsAreWatchedOnDemand(t *testing.T) {
	f := func(want bool, change func(*config.Settings)) {
		t.Helper()
		o := config.New()
		change(o)
		b := &accessBuilder{settings: o, metrics: newAccessMetrics(prometheus.NewRegistry()), log: zap.NewNop()}
		if got := b.newRights(nil) != nil; got != want {
			t.Errorf("%+v: watched %v", o, got)
		}
	}
	f(false, func(*config.Settings) {})
	f(true, func(o *config.Settings) { o.WatchRBAC = true })
	f(true, func(o *config.Settings) { o.LocalRBAC = true })
	f(true, func(o *config.Settings) { o.LocalTokens = config.LocalTokensUnbound })
}

// A resource that upstream does not let Spillway watch is one line in the log. Later tries and
// proofs add none.
func TestRightsThatMayNotBeWatched(t *testing.T) {
	up := fakeapiserver.New(fakeapiserver.Options{}) // which serves none of them
	t.Cleanup(up.Close)
	client := clientOf(t, up)
	t.Cleanup(client.Close)
	core, logs := observer.New(zap.DebugLevel)
	o := config.New()
	o.LocalRBAC, o.LocalTokens = true, config.LocalTokensPods
	b := &accessBuilder{
		settings: o, client: client, metrics: newAccessMetrics(prometheus.NewRegistry()), log: zap.New(core),
	}
	rights := b.newRights(auth.NewReviewer(client.Base(), client.HTTP().Transport, zap.NewNop()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- rights.Run(ctx, func(func(*auth.Identity, auth.Attributes) bool) {}) }()
	warnings := func() int { return logs.FilterLevelExact(zap.WarnLevel).Len() }
	unwatched := len(rights.Tables()) - 1 // pods, the test server does serve
	eventually(t, "the log to say what may not be watched", func() bool { return warnings() == unwatched })
	time.Sleep(100 * time.Millisecond) // in which nothing more may come
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := warnings(); n != unwatched {
		t.Errorf("%d warnings", n)
	}
	if n := logs.FilterMessageSnippet("cannot be proven").FilterField(
		zap.String("what", "roles.rbac.authorization.k8s.io")).Len(); n != 0 {
		t.Errorf("%d lines about proofs", n)
	}
}

// A front proxy may claim any user, so it must be distinguished from the clients.
func TestFrontProxyIsDistinguishedFromClients(t *testing.T) {
	authority := func() string {
		block := &pem.Block{Type: "CERTIFICATE", Bytes: selfSigned(t).Certificate[0]}
		return writeFile(t, "ca.crt", string(pem.EncodeToMemory(block)))
	}
	clients, fronts, none := authority(), authority(), writeFile(t, "bad.yaml", "listen: [")
	f := func(name, front, want string, more ...string) {
		t.Helper()
		got := start(nil, append([]string{"--listen-tls=:6443", "--client-ca-file=" + clients,
			"--requestheader-client-ca-file=" + front}, more...)...)
		if got.options == nil {
			t.Fatal(got.stderr)
		}
		b := &accessBuilder{
			settings: got.options, followed: &rotation.FollowedFiles{}, metrics: newAccessMetrics(prometheus.NewRegistry()),
			log: zap.NewNop(),
		}
		made, err := b.newRemoteAccess(nil, nil)
		if (err == nil) != (want == "") || err != nil && err.Error() != "--requestheader-client-ca-file="+front+": "+want {
			t.Errorf("%s: %v, %v; want %q", name, made, err, want)
		}
	}
	f("the same authority", clients, "has an authority of --client-ca-file in it, so that every client could claim to be "+
		"any user: name the proxy in --requestheader-allowed-names, or give it an authority of its own")
	f("another authority", fronts, "")
	f("a name", clients, "", "--requestheader-allowed-names=front")
	f("no authority", none, "cannot be used: certificate authorities "+none+": there is no certificate in it")
}

// What config says of values that other packages define is what these say.
func TestSettingsAreThoseOfTheirPackages(t *testing.T) {
	if config.LocalTokensUnbound != string(rbac.TokensUnbound) || config.LocalTokensPods != string(rbac.TokensPods) {
		t.Error("--authentication-local-jwks has other values than rbac.TokensKept")
	}
	for flag, words := range map[string][]string{"log-level": logging.Levels, "log-format": logging.Formats} {
		f := newCommand(nil, logging.NewOutput(io.Discard), nil).Flags().Lookup(flag)
		if got := f.Value.Type(); got != strings.Join(words, "|") {
			t.Errorf("--%s has the values %s", flag, got)
		}
	}
	expectLine(t, start(nil, "--reauthorization-interval=14.999s"),
		"--reauthorization-interval=14.999s: must be at least "+reauth.MinSweep.String())
}

// /readyz?verbose and the metric tell a denied review from one that is not answered.
func TestReviewsAreDescribed(t *testing.T) {
	cluster := authtest.NewCluster()
	reviewer := auth.NewReviewer(&url.URL{Scheme: "https", Host: "cluster"}, cluster, zap.NewNop())
	authenticator := auth.NewAuthenticator(auth.AuthenticatorOptions{Reviewer: reviewer})
	a := &access{reviewer: reviewer}
	for i, c := range []struct {
		name   string
		breaks func()
		line   string
		denied float64
	}{
		{"answered", func() {}, "[+]reviews ok", 0},
		{"denied", func() { cluster.Refusing = http.StatusForbidden }, "[!]reviews refused for 0s: TokenReview: upstream " +
			"answered 403: without a Status; clients get nothing from memory: give Spillway the rights of the cluster role " +
			"system:auth-delegator, which the chart binds unless rbac.create is false", 1},
		{"unanswered", func() { cluster.Failing = true }, "[!]reviews unanswered for 0s: TokenReview: connection refused; " +
			"clients that need one get nothing from memory", 0},
		{"answered again", func() { cluster.Failing, cluster.Refusing = false, 0 }, "[+]reviews ok", 0},
	} {
		cluster.Change(c.breaks)
		header := http.Header{"Authorization": {fmt.Sprint("Bearer token", i)}}
		authenticator.Authenticate(t.Context(), auth.AuthnRequest{Header: header})
		if got := a.describeReviews(); len(got) != 1 || got[0] != c.line {
			t.Errorf("%s: %q", c.name, got)
		}
		if got := a.refusedReviews(); got != c.denied {
			t.Errorf("%s: the metric is %v", c.name, got)
		}
	}
	if got := (&access{}).describeReviews(); len(got) != 0 {
		t.Errorf("without reviews: %q", got)
	}
}
