package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"spillway/internal/auth"
	"spillway/internal/fakeapiserver"
	"spillway/internal/health"
	"spillway/internal/status"
)

// The listener of operators serves users that the API server allows, and none while the API server
// does not answer (D16).
func TestRemoteUsers(t *testing.T) {
	up := fakeapiserver.New(fakeapiserver.Options{})
	t.Cleanup(up.Close)
	reviews := up.Reviews()
	reviews.Know("prometheus", authenticationv1.UserInfo{Username: "prometheus", Groups: []string{"system:monitoring"}})
	reviews.Know("operator", authenticationv1.UserInfo{Username: "operator"})
	reviews.Know("alice", authenticationv1.UserInfo{Username: "alice"})
	reviews.Allow(func(s authorizationv1.SubjectAccessReviewSpec) bool {
		may := map[string]string{"prometheus": "/metrics", "operator": "/statusz"}
		return s.NonResourceAttributes != nil && s.NonResourceAttributes.Path == may[s.User] &&
			s.NonResourceAttributes.Verb == "get"
	})
	base, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	own := &http.Transport{}
	t.Cleanup(own.CloseIdleConnections)
	reviewer, metrics := auth.NewReviewer(base, own, zap.NewNop()), auth.NewMetrics(nil)
	access := func() (*auth.Authenticator, *auth.Authorizer) {
		return auth.NewAuthenticator(auth.AuthenticatorOptions{Reviewer: reviewer, Metrics: metrics}),
			auth.NewAuthorizer(auth.AuthorizerOptions{Reviewer: reviewer, Metrics: metrics})
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "spillway_test"}, func() float64 {
		return 7
	}))
	reporter := status.NewReporter(func(context.Context) (*status.Report, error) {
		return &status.Report{At: time.Now(), Version: "v7"}, nil
	})
	t.Cleanup(reporter.Close)
	seen := &Endpoints{Health: &health.Checks{}, Registry: registry, Status: reporter,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Access: access, Debug: true, Log: zap.NewNop()}
	handler := seen.handler(false)
	ask := func(path, token string) *http.Response {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, http.NoBody)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		handler.ServeHTTP(w, r)
		return w.Result()
	}
	for _, c := range []struct {
		path, token string
		code        int
		says        string
	}{
		{"/metrics", "prometheus", 200, "spillway_test 7"},
		{"/metrics", "alice", 403, `User \"alice\" cannot get path \"/metrics\"`},
		{"/metrics", "forged", 401, "Unauthorized"},
		{"/metrics", "", 401, "Unauthorized"},
		{"/statusz?format=json", "operator", 200, `"version":"v7"`},
		{"/statusz", "operator", 200, "<title>Spillway status</title>"},
		{"/statusz", "prometheus", 403, `User \"prometheus\" cannot get path \"/statusz\"`},
		{"/statusz?format=json", "", 401, "Unauthorized"},
		{"/metrics", "operator", 403, `cannot get path \"/metrics\"`},
		{"/debug/pprof/", "prometheus", 403, `cannot get path \"/debug/pprof/\"`},
		{"/", "", 401, "Unauthorized"},
		{"/livez", "", 200, "ok"},
		{"/readyz", "", 200, "ok"},
	} {
		got := ask(c.path, c.token)
		body, _ := io.ReadAll(got.Body)
		if got.StatusCode != c.code || !strings.Contains(string(body), c.says) {
			t.Errorf("GET %s by %q: %d %s; want %d, %s", c.path, c.token, got.StatusCode, body, c.code, c.says)
		}
	}
	reviews.Fail(http.StatusInternalServerError)
	if got := ask("/metrics", "new"); got.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while the API server does not answer: %d", got.StatusCode)
	}
	if got := ask("/debug/pprof/heap", "prometheus"); got.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while the API server does not answer: %d", got.StatusCode)
	}
	seen.TLS = nil // credentials are not taken where others might read them
	handler = seen.handler(false)
	if got := ask("/metrics", "prometheus"); got.StatusCode != http.StatusForbidden {
		t.Errorf("without TLS: %d", got.StatusCode)
	}
}

// Only a sidecar's listener has no TLS off loopback, and no flag changes that, so its refusal names
// none. Elsewhere, --insecure-allow-all is the cause, and the refusal names the flag.
func TestRefusalsNameWhatHelps(t *testing.T) {
	access := func() (*auth.Authenticator, *auth.Authorizer) {
		t.Error("a listener that does not authenticate asks for users")
		return nil, nil
	}
	sidecar := &Endpoints{Health: &health.Checks{}, Registry: prometheus.NewRegistry(), Access: access, Log: zap.NewNop()}
	sidecarForAll := &Endpoints{Health: &health.Checks{}, Registry: prometheus.NewRegistry(), Log: zap.NewNop()}
	open := &Endpoints{Health: &health.Checks{}, Registry: prometheus.NewRegistry(),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Log: zap.NewNop()}
	for _, path := range []string{"/metrics", "/statusz", "/", "/debug/pprof/"} {
		for e, want := range map[*Endpoints]string{
			sidecar: "a sidecar's listener does not authenticate", sidecarForAll: "a sidecar's listener does not authenticate",
			open: "remove --insecure-allow-all",
		} {
			w := httptest.NewRecorder()
			e.handler(false).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			if body := w.Body.String(); w.Code != http.StatusForbidden || !strings.Contains(body, want) ||
				strings.Contains(body, "--") != (e == open) {
				t.Errorf("GET %s: %d %s, want %s", path, w.Code, body, want)
			}
		}
	}
}

// While upstream has been unreachable since the start, the owner of a sidecar's listener is
// unknown, and requests are refused.
func TestRemoteUsersBeforeUpstreamAnswers(t *testing.T) {
	access := func() (*auth.Authenticator, *auth.Authorizer) {
		t.Error("access is read too early")
		return nil, nil
	}
	away := func() error { return errors.New("away") }
	seen := &Endpoints{Health: &health.Checks{}, Registry: prometheus.NewRegistry(),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Access: access, Unreachable: away, Log: zap.NewNop()}
	for path, want := range map[string]int{"/metrics": http.StatusServiceUnavailable,
		"/statusz": http.StatusServiceUnavailable, "/livez": http.StatusOK} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, http.NoBody)
		r.Header.Set("Authorization", "Bearer somebody")
		seen.handler(false).ServeHTTP(w, r)
		if w.Code != want || want != http.StatusOK &&
			!strings.Contains(w.Body.String(), "the API server did not answer whether this is allowed") {
			t.Errorf("GET %s: %d %s", path, w.Code, w.Body)
		}
	}
}

// Web pages reach loopback by names of their own.
func TestLoopbackOnly(t *testing.T) {
	h := loopbackOnly(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	f := func(host string, want int) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/statusz", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("Host %q: %d, want %d", host, w.Code, want)
		}
	}
	f("localhost", 200)
	f("LocalHost:9464", 200)
	f("127.0.0.1:9464", 200)
	f("127.0.0.1", 200)
	f("[::1]:9464", 200)
	f("[::1]", 200)
	f("[0:0:0:0:0:0:0:1]:9464", 200)
	f("", 403)
	f("evil.example.com", 403)
	f("evil.example.com:9464", 403)
	f("localhost.evil.example.com:9464", 403)
	f("127.0.0.1.evil.example.com", 403)
	f("10.0.0.1:9464", 403)
}
