package auth

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	jose "github.com/go-jose/go-jose/v4"
)

// jumping is a clock like a host's: what it shows has a reading of the wall clock, which may be
// set, and one of the clock that runs, which may not. Inside a bubble package time has the first
// alone, so the clock begins outside.
type jumping struct {
	clock.RealClock // its timers
	t               *testing.T
	base            time.Time // of both readings, as the bubble began
	began           time.Time
	off             atomic.Int64 // by how much the wall clock was set forward, in ns
}

func newJumping(t *testing.T) *jumping { return &jumping{t: t, base: time.Now()} }

func (j *jumping) begin() { j.began = time.Now() }

func (j *jumping) Now() time.Time {
	return setBack(j.t, j.base.Add(time.Since(j.began)), -time.Duration(j.off.Load()))
}

func (j *jumping) Since(at time.Time) time.Duration { return j.Now().Sub(at) }

// jump sets the wall clock.
func (j *jumping) jump(by time.Duration) { j.off.Add(int64(by)) }

// onClock runs a test on guard, where all looks at one jumping clock.
func onClock(t *testing.T, change func(*guard, *RightsOptions, *AuthenticatorOptions, *ReauthorizerOptions),
	test func(*guard, *jumping)) {
	t.Helper()
	j := newJumping(t)
	onGuard(t, func(g *guard, r *RightsOptions, a *AuthenticatorOptions, ro *ReauthorizerOptions) {
		j.begin()
		r.Clock, a.Clock, ro.Clock, ro.Sweep = j, j, j, 0
		if change != nil {
			change(g, r, a, ro)
		}
	}, func(g *guard) { test(g, j) })
}

var jumps = map[string]time.Duration{"back": -3 * time.Hour, "forward": 3 * time.Hour}

// A right that goes as the wall clock is set is gone as soon as any other, and a right that stays holds no watch up.
func TestClockJumpsDoNotChangeWhatWatchesRunBy(t *testing.T) {
	for name, by := range jumps {
		t.Run(name, func(t *testing.T) {
			onClock(t, nil, func(g *guard, j *jumping) {
				stays, _ := g.watch(g.know("alice"), "pods")
				token, _ := g.watch(g.know("bob"), "pods")
				right, _ := g.watch(g.know("carol"), "pods")
				for range 10 {
					time.Sleep(time.Minute)
					j.jump(by)
				}
				left := time.Now()
				g.change(func() {
					delete(g.users, "token-of-bob")
					g.denied["carol pods"] = true
				})
				j.jump(by)
				time.Sleep(30 * time.Second)
				g.patrol.check(token, false, EndUnauthenticated)
				g.patrol.check(right, false, EndForbidden)
				for _, l := range []*live{token, right} {
					if _, at := l.ended(); at.Sub(left) > defaultSweep+grace {
						t.Errorf("ended after %v", at.Sub(left))
					}
				}
				g.patrol.check(stays, true, "")
				if len(stays.told) != 0 {
					t.Errorf("the watch whose right stays was sent %q", stays.told)
				}
			})
		})
	}
}

// An outage that holds watches ends them after its time on the clock that runs, whatever the wall clock shows.
func TestClockJumpsDoNotChangeHowLongWatchesAreHeld(t *testing.T) {
	for name, by := range jumps {
		t.Run(name, func(t *testing.T) {
			onClock(t, nil, func(g *guard, j *jumping) {
				held, _ := g.watch(g.know("alice"), "pods")
				time.Sleep(time.Minute)
				g.change(func() { g.failing = true })
				time.Sleep(time.Minute)
				g.patrol.check(held, false, "")
				j.jump(by)
				time.Sleep(defaultHoldMost - 2*time.Minute)
				g.patrol.check(held, false, "")
				time.Sleep(3 * time.Minute)
				g.patrol.check(held, false, EndUnconfirmed)
			})
		})
	}
}

// What upstream said is remembered for as long as ever.
func TestClockJumpsDoNotChangeHowLongAnswersCount(t *testing.T) {
	for name, by := range jumps {
		t.Run(name, func(t *testing.T) {
			onClock(t, nil, func(g *guard, j *jumping) {
				alice := g.know("alice")
				asks := func() (Outcome, Verdict) {
					result := g.authn.Authenticate(context.Background(), alice)
					return result.Outcome, g.authz.Authorize(context.Background(), bob, wants(t, "/api/v1/pods")).Verdict
				}
				check := func(who Outcome, what Verdict) {
					t.Helper()
					if w, v := asks(); w != who || v != what {
						t.Errorf("%s, %s; want %s, %s", w, v, who, what)
					}
				}
				check(Authenticated, Allowed)
				g.change(func() {
					delete(g.users, "token-of-alice")
					g.denied["bob pods"] = true
				})
				j.jump(by)
				time.Sleep(AllowedFor - time.Second)
				check(Authenticated, Allowed) // nor are they forgotten: a jump makes no storm of reviews
				time.Sleep(time.Second)
				check(Refused, Denied)
				j.jump(by)
				g.change(func() {
					g.users["token-of-alice"] = "alice"
					g.denied["bob pods"] = false
				})
				time.Sleep(DeniedFor)
				if w, _ := asks(); w != Authenticated {
					t.Errorf("the token is still %s", w)
				}
			})
		})
	}
}

// A certificate ends when its time is over, for requests and for watches: when the wall clock says
// so, or when it would have if it had not been set back.
func TestClockJumpsDoNotProlongCertificates(t *testing.T) {
	j := newJumping(t)
	authority := newCA(t, "ca", j.base)
	cert := authority.issue(pkix.Name{CommonName: "alice"}, j.base.Add(30*time.Minute))
	file := write(t, pemOf(authority.cert))
	for name, c := range map[string]struct{ by, ends time.Duration }{
		"back":                   {-50 * time.Minute, 30 * time.Minute},
		"forward":                {10 * time.Minute, 20 * time.Minute},
		"forward beyond its end": {2 * time.Hour, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			j.off.Store(0)
			onGuard(t, func(_ *guard, r *RightsOptions, a *AuthenticatorOptions, ro *ReauthorizerOptions) {
				j.begin()
				ca, err := NewAuthority(file, j, zap.NewNop())
				if err != nil {
					t.Fatal(err)
				}
				r.Clock, a.Clock, a.ClientCA, ro.Clock, ro.Sweep = j, j, ca, j, 0
			}, func(g *guard) {
				shows := Request{Peer: []*x509.Certificate{cert}}
				watch, _ := g.watch(shows, "pods")
				time.Sleep(10*time.Minute - time.Since(g.began))
				g.patrol.check(watch, true, "")
				j.jump(c.by)
				if c.ends > 10*time.Minute {
					time.Sleep(c.ends - 10*time.Minute - 2*time.Second)
					g.patrol.check(watch, true, "")
					if result := g.authn.Authenticate(context.Background(), shows); result.Outcome != Authenticated {
						t.Errorf("2 s before its end: %s, %v", result.Outcome, result.Err)
					}
				}
				time.Sleep(30 * time.Second)
				g.patrol.check(watch, false, EndExpired)
				for range 3 {
					if result := g.authn.Authenticate(context.Background(), shows); result.Outcome == Authenticated {
						t.Errorf("after its end: %s", result.Outcome)
					}
					time.Sleep(time.Hour / 3)
				}
			})
		})
	}
}

// A token whose end has passed is not taken here because the wall clock was set back: upstream decides.
func TestClockJumpsDoNotProlongLocalTokens(t *testing.T) {
	m := newMint(t, "k1", jose.ES256)
	for name, by := range jumps {
		t.Run(name, func(t *testing.T) {
			token := m.sign(claims(nil)) // for an hour
			onClock(t, func(g *guard, r *RightsOptions, a *AuthenticatorOptions, _ *ReauthorizerOptions) {
				r.Tokens, a.Audiences = TokensUnbound, []string{"api"}
				g.registry.publish(m.public())
				g.put("serviceaccounts", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1",
					Name: "robot", UID: "sa-1"}})
			}, func(g *guard, j *jumping) {
				here := func() bool {
					before, _ := g.asked()
					result := g.authn.Authenticate(context.Background(), withToken(token))
					after, _ := g.asked()
					return result.Outcome == Authenticated && after == before
				}
				time.Sleep(50 * time.Minute)
				if !here() {
					t.Error("not taken in its time")
				}
				j.jump(by / 6) // no further back than when the token was signed
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

// What decides here counts for ten seconds, and is proven again every five: keys, service accounts, roles, bindings.
func TestClockJumpsDoNotChangeHowLongProofsCount(t *testing.T) {
	m := newMint(t, "k1", jose.ES256)
	for name, by := range jumps {
		t.Run(name, func(t *testing.T) {
			token := m.sign(claims(nil))
			onClock(t, func(g *guard, r *RightsOptions, a *AuthenticatorOptions, _ *ReauthorizerOptions) {
				r.RBAC, r.Tokens, a.Audiences = true, TokensUnbound, []string{"api"}
				g.registry.publish(m.public())
				g.put("serviceaccounts", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1",
					Name: "robot", UID: "sa-1"}})
				g.grant("", "pods", user("bob"), reads("pods"))
			}, func(g *guard, j *jumping) {
				n := 0
				allowed := func() bool {
					n++
					d, reviews := g.decide(bob, fmt.Sprintf("/api/v1/namespaces/n%d/pods", n))
					return d.Verdict == Allowed && reviews == 0
				}
				keys := func() bool {
					g.rights.mu.RLock()
					defer g.rights.mu.RUnlock()
					return g.rights.counts(g.rights.keys.proven)
				}
				for range 10 {
					j.jump(by / 10)
					time.Sleep(7 * time.Second)
					if !allowed() {
						t.Fatal("roles do not decide")
					}
				}
				if by > 0 { // a wall clock that is set back may make the token one of the future
					if r := g.authn.Authenticate(context.Background(), withToken(token)); r.Outcome != Refused {
						t.Errorf("a token whose end has come by the wall clock is %s", r.Outcome)
					}
				}
				g.do(func() { g.mute = true; clear(g.documents) })
				j.jump(by)
				time.Sleep(AllowedFor)
				synctest.Wait()
				if allowed() || keys() {
					t.Error("decided by what was proven longer ago")
				}
			})
		})
	}
}

// A file of authorities that was rotated counts a second later also after the wall clock was set back.
func TestClockJumpsDoNotKeepAuthorities(t *testing.T) {
	for name, by := range jumps {
		t.Run(name, func(t *testing.T) {
			j := newJumping(t)
			first, second := newCA(t, "first", j.base), newCA(t, "second", j.base)
			file := write(t, pemOf(first.cert))
			synctest.Test(t, func(t *testing.T) {
				j.begin()
				a, err := NewAuthority(file, j, zap.NewNop())
				if err != nil {
					t.Fatal(err)
				}
				j.jump(by)
				if err := os.WriteFile(file, pemOf(second.cert), 0o600); err != nil {
					t.Fatal(err)
				}
				time.Sleep(reloadEvery)
				if _, certs := a.current(); !certs[0].Equal(second.cert) {
					t.Error("the first authority still counts")
				}
			})
		})
	}
}
