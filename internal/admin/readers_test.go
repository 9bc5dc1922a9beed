package admin

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"spillway/internal/auth"
	"spillway/internal/auth/authtest"
	"spillway/internal/health"
)

// scraped is a listener of operators in a bubble, in front of a cluster that knows the users
// prometheus, which may get all paths, and alice, which may get none.
type scraped struct {
	t       *testing.T
	cluster *authtest.Cluster
	handler http.Handler
}

func newScraped(t *testing.T) *scraped {
	t.Helper()
	cluster := authtest.NewCluster()
	cluster.Users["good"], cluster.Users["alice"] = "prometheus", "alice"
	cluster.Denied["alice /metrics"] = true
	reviewer := auth.NewReviewer(&url.URL{Scheme: "https", Host: "cluster"}, cluster, zap.NewNop())
	authenticator := auth.NewAuthenticator(auth.AuthenticatorOptions{Reviewer: reviewer})
	authorizer := auth.NewAuthorizer(auth.AuthorizerOptions{Reviewer: reviewer})
	endpoints := &Endpoints{Health: &health.Checks{}, Registry: prometheus.NewRegistry(),
		TLS:    &tls.Config{MinVersion: tls.VersionTLS12},
		Access: func() (*auth.Authenticator, *auth.Authorizer) { return authenticator, authorizer },
		Debug:  true, Log: zap.NewNop()}
	return &scraped{t, cluster, endpoints.handler(false)}
}

// get is the code of an answer, how long it took, and what it says.
func (s *scraped) get(path, token string, header ...string) (code int, took time.Duration, says string) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	began := time.Now()
	s.handler.ServeHTTP(w, r)
	return w.Code, time.Since(began), w.Body.String()
}

func (s *scraped) want(code int, path, token string, header ...string) {
	s.t.Helper()
	if got, _, says := s.get(path, token, header...); got != code {
		s.t.Errorf("GET %s by %s: %d, want %d: %s", path, token, got, code, says)
	}
}

// unreviewable are the ways in which no review can be had.
var unreviewable = map[string]func(*authtest.Cluster){
	"frozen":  func(c *authtest.Cluster) { c.Latency = func() time.Duration { return time.Hour } },
	"gone":    func(c *authtest.Cluster) { c.Failing = true },
	"refused": func(c *authtest.Cluster) { c.Refusing = http.StatusForbidden },
	"failing": func(c *authtest.Cluster) { c.Refusing = http.StatusInternalServerError },
}

// A reader of metrics that upstream has allowed goes on reading them for an hour while upstream
// answers no review, each time before a scrape times out. No other reader does, and no other path
// is read that way.
func TestAllowedReadersKeepMetricsWithoutReviews(t *testing.T) {
	for name, breaks := range unreviewable {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScraped(t)
				s.want(200, "/metrics", "good")
				s.want(200, "/debug/pprof/cmdline", "good")
				s.want(403, "/metrics", "alice")
				s.cluster.Change(func() { breaks(s.cluster) })
				for began := time.Now(); time.Since(began) < 58*time.Minute; {
					time.Sleep(30 * time.Second)
					code, took, says := s.get("/metrics", "good")
					if code != 200 || took > 2*time.Second {
						t.Fatalf("%d after %v: %s", code, took, says)
					}
				}
				s.want(503, "/metrics", "alice")
				s.want(503, "/metrics", "forged")
				s.want(503, "/debug/pprof/cmdline", "good")
				s.want(503, "/", "good")
				s.want(401, "/metrics", "good", "Impersonate-User", "alice")
				time.Sleep(3 * time.Minute)
				s.want(503, "/metrics", "good")
				s.cluster.Change(func() {
					s.cluster.Failing, s.cluster.Refusing = false, 0
					s.cluster.Latency = func() time.Duration { return time.Millisecond }
				})
				time.Sleep(20 * time.Second)
				s.want(200, "/metrics", "good")
				synctest.Wait()
			})
		})
	}
}

// A denial, or a token that upstream does not know any more, ends it at once, and it is not
// remembered when no review can be had afterwards. It counts although it comes late.
func TestDenialEndsRememberedReader(t *testing.T) {
	for name, deny := range map[string]func(*authtest.Cluster){
		"forbidden": func(c *authtest.Cluster) { c.Denied["prometheus /metrics"] = true },
		"unknown":   func(c *authtest.Cluster) { delete(c.Users, "good"); clear(c.Remembered) },
	} {
		for _, latency := range []time.Duration{time.Millisecond, 2500 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s after %v", name, latency), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newScraped(t)
					s.want(200, "/metrics", "good")
					s.cluster.Change(func() { deny(s.cluster); s.cluster.Latency = func() time.Duration { return latency } })
					time.Sleep(11 * time.Second) // the answers to reviews are not remembered any more
					if latency > rememberedReviewWait {
						s.want(200, "/metrics", "good") // it is not known yet
						time.Sleep(2 * latency)
					}
					if code, _, says := s.get("/metrics", "good"); code != 401 && code != 403 {
						t.Errorf("%d: %s", code, says)
					}
					s.cluster.Change(func() { s.cluster.Failing = true })
					time.Sleep(11 * time.Second)
					s.want(503, "/metrics", "good")
					synctest.Wait()
				})
			})
		}
	}
}

// A reader is remembered no longer than its token lasts.
func TestRememberedReaderEndsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScraped(t)
		token := authtest.JWT(fmt.Sprintf(`{"exp":%d}`, time.Now().Add(10*time.Minute).Unix()))
		s.cluster.Users[token] = "prometheus"
		s.want(200, "/metrics", token)
		s.cluster.Change(func() { s.cluster.Failing = true })
		time.Sleep(9 * time.Minute)
		s.want(200, "/metrics", token)
		time.Sleep(time.Minute)
		s.want(503, "/metrics", token)
	})
}

// Readers are remembered by a hash, and a bounded number of them.
func TestRememberedReadersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScraped(t)
		for i := range rememberedReadersLimit + 1 {
			token := fmt.Sprint("token", i)
			s.cluster.Users[token] = "prometheus"
			s.want(200, "/metrics", token)
		}
		s.cluster.Change(func() { s.cluster.Failing = true })
		time.Sleep(time.Minute)
		s.want(503, "/metrics", "token0")
		s.want(200, "/metrics", "token1")
		s.want(200, "/metrics", fmt.Sprint("token", rememberedReadersLimit))
	})
}

// Why there is no review is said as it is: a role is missing only where upstream denies.
func TestMissingReviewIsExplained(t *testing.T) {
	const role = "the API server denied Spillway the review of whether this is allowed: Spillway needs the rights " +
		"of the cluster role system:auth-delegator"
	for name, breaks := range unreviewable {
		synctest.Test(t, func(t *testing.T) {
			s := newScraped(t)
			breaks(s.cluster)
			if _, _, says := s.get("/metrics", "good"); strings.Contains(says, role) != (name == "refused") ||
				name != "refused" && !strings.Contains(says, "the API server did not answer whether this is allowed") {
				t.Errorf("%s: %s", name, says)
			}
		})
	}
}
