package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"spillway/internal/auth"
	"spillway/internal/auth/authtest"
	"spillway/internal/auth/rbac"
	"spillway/internal/config"
	"spillway/internal/fakeapiserver"
)

// Rights are watched for whatever needs them, and for nothing else.
func TestRightsAreWatchedOnDemand(t *testing.T) {
	f := func(want bool, change func(*config.Settings)) {
		t.Helper()
		o := config.New()
		change(o)
		if got := newRights(nil, nil, o, rbac.NewMetrics(nil), zap.NewNop()) != nil; got != want {
			t.Errorf("%+v: watched %v", o, got)
		}
	}
	f(false, func(*config.Settings) {})
	f(true, func(o *config.Settings) { o.WatchRBAC = true })
	f(true, func(o *config.Settings) { o.LocalRBAC = true })
	f(true, func(o *config.Settings) { o.LocalTokens = config.LocalTokensUnbound })
}

// What upstream does not let us watch is a line in the log for each resource, and no more: not when
// it is tried again, nor when it is proven.
func TestRightsThatMayNotBeWatched(t *testing.T) {
	up := fakeapiserver.New(fakeapiserver.Options{}) // which serves none of them
	t.Cleanup(up.Close)
	client := clientOf(t, up)
	t.Cleanup(client.Close)
	core, logs := observer.New(zap.DebugLevel)
	o := config.New()
	o.LocalRBAC, o.LocalTokens = true, config.LocalTokensPods
	rights := newRights(client, auth.NewReviewer(client.Base(), client.HTTP().Transport, zap.NewNop()), o,
		rbac.NewMetrics(nil), zap.New(core))
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
			"system:auth-delegator", 1},
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
