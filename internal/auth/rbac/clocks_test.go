package rbac

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/auth"
	"spillway/internal/auth/authtest"
	"spillway/internal/auth/reauth/reauthtest"
)

// onClock runs a test on guard, where everything looks at one clock that can be set.
func onClock(t *testing.T, change func(*guard, *setup), test func(*guard, *authtest.Clock)) {
	t.Helper()
	j := authtest.NewClock(t)
	onGuard(t, func(g *guard, s *setup) {
		j.Begin()
		s.rights.Clock, s.Authn.Clock, s.Reauth.Clock, s.Reauth.Sweep = j, j, j, 0
		change(g, s)
	}, func(g *guard) { test(g, j) })
}

// A token whose end has passed is not taken here because the wall clock was set back: the API
// server decides.
func TestClockJumpsDoNotProlongLocalTokens(t *testing.T) {
	m := newMint(t, "k1", jose.ES256)
	for name, by := range authtest.Jumps {
		t.Run(name, func(t *testing.T) {
			token := m.sign(claims(nil)) // for an hour
			onClock(t, func(g *guard, s *setup) {
				s.rights.Tokens, s.Authn.Audiences = TokensUnbound, []string{"api"}
				g.registry.publish(m.public())
				g.put("serviceaccounts", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1",
					Name: "robot", UID: "sa-1"}})
			}, func(g *guard, j *authtest.Clock) {
				here := func() bool {
					before, _ := g.CountReviews()
					result := g.authn.Authenticate(context.Background(), reauthtest.WithToken(token))
					after, _ := g.CountReviews()
					return result.Outcome == auth.Authenticated && after == before
				}
				time.Sleep(50 * time.Minute)
				if !here() {
					t.Error("not taken in its time")
				}
				j.Jump(by / 6) // no further back than when the token was signed
				for range 20 {
					time.Sleep(time.Minute)
					if time.Since(g.began) > time.Hour && here() {
						t.Fatalf("taken %v after it was signed", time.Since(g.began))
					}
				}
			})
		})
	}
}

// What decides here counts for ten seconds, and is proven again every five: keys, service accounts,
// roles, bindings.
func TestClockJumpsDoNotChangeHowLongProofsCount(t *testing.T) {
	m := newMint(t, "k1", jose.ES256)
	for name, by := range authtest.Jumps {
		t.Run(name, func(t *testing.T) {
			token := m.sign(claims(nil))
			onClock(t, func(g *guard, s *setup) {
				s.rights.RBAC, s.rights.Tokens, s.Authn.Audiences = true, TokensUnbound, []string{"api"}
				g.registry.publish(m.public())
				g.put("serviceaccounts", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1",
					Name: "robot", UID: "sa-1"}})
				g.grant("", "pods", user("bob"), reads("pods"))
			}, func(g *guard, j *authtest.Clock) {
				n := 0
				allowed := func() bool {
					n++
					d, reviews := g.decide(reauthtest.Bob, fmt.Sprintf("/api/v1/namespaces/n%d/pods", n))
					return d.Verdict == auth.Allowed && reviews == 0
				}
				keys := func() bool {
					g.rights.mu.RLock()
					defer g.rights.mu.RUnlock()
					return g.rights.isRecent(g.rights.keys.proven)
				}
				for range 10 {
					j.Jump(by / 10)
					time.Sleep(7 * time.Second)
					if !allowed() {
						t.Fatal("roles do not decide")
					}
				}
				if by > 0 { // a wall clock that is set back may make the token one of the future
					if r := g.authn.Authenticate(context.Background(), reauthtest.WithToken(token)); r.Outcome != auth.Refused {
						t.Errorf("a token whose end has come by the wall clock is %s", r.Outcome)
					}
				}
				g.do(func() { g.mute = true; clear(g.documents) })
				j.Jump(by)
				time.Sleep(auth.AnswerTTL)
				synctest.Wait()
				if allowed() || keys() {
					t.Error("decided by what was proven longer ago")
				}
			})
		})
	}
}
