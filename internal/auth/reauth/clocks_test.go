package reauth_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"
	"time"

	"go.uber.org/zap"

	"spillway/internal/auth"
	"spillway/internal/auth/authtest"
	"spillway/internal/auth/reauth"
	"spillway/internal/auth/reauth/reauthtest"
)

// onClock runs a test in a bubble where everything looks at one clock that can be set.
func onClock(t *testing.T, test func(*reauthtest.Model, *authtest.Clock)) {
	t.Helper()
	j := authtest.NewClock(t)
	reauthtest.On(t, func(s *reauthtest.Setup) { useClock(s, j) }, func(p *reauthtest.Model) { test(p, j) })
}

func useClock(s *reauthtest.Setup, j *authtest.Clock) {
	j.Begin()
	s.Authn.Clock, s.Authz.Clock, s.Reauth.Clock = j, j, j
	s.Reauth.Random = func() float64 { return 0 }
}

// A right that goes as the wall clock is set is gone as soon as any other, and a right that stays
// holds no watch up.
func TestClockJumpsDoNotChangeWhatWatchesRunBy(t *testing.T) {
	for name, by := range authtest.Jumps {
		t.Run(name, func(t *testing.T) {
			onClock(t, func(p *reauthtest.Model, j *authtest.Clock) {
				stays, _ := p.Watch(p.Know("alice"), "pods")
				token, _ := p.Watch(p.Know("bob"), "pods")
				right, _ := p.Watch(p.Know("carol"), "pods")
				for range 10 {
					time.Sleep(time.Minute)
					j.Jump(by)
				}
				left := time.Now()
				p.Cluster.Change(func() {
					delete(p.Cluster.Users, "token-of-bob")
					p.Cluster.Denied["carol pods"] = true
				})
				j.Jump(by)
				time.Sleep(30 * time.Second)
				p.Expect(token, false, reauth.EndUnauthenticated)
				p.Expect(right, false, reauth.EndForbidden)
				for _, l := range []*reauthtest.Live{token, right} {
					if _, at := l.Ended(); at.Sub(left) > reauth.DefaultSweep+reauth.Grace {
						t.Errorf("ended after %v", at.Sub(left))
					}
				}
				p.Expect(stays, true, "")
				if len(stays.Calls()) != 0 {
					t.Errorf("the watch whose right stays was sent %q", stays.Calls())
				}
			})
		})
	}
}

// An outage that holds watches ends them after its time on the clock that runs, whatever the wall
// clock shows.
func TestClockJumpsDoNotChangeHowLongWatchesAreHeld(t *testing.T) {
	for name, by := range authtest.Jumps {
		t.Run(name, func(t *testing.T) {
			onClock(t, func(p *reauthtest.Model, j *authtest.Clock) {
				held, _ := p.Watch(p.Know("alice"), "pods")
				time.Sleep(time.Minute)
				p.Cluster.Change(func() { p.Cluster.Failing = true })
				time.Sleep(time.Minute)
				p.Expect(held, false, "")
				j.Jump(by)
				time.Sleep(reauth.DefaultHoldMost - 2*time.Minute)
				p.Expect(held, false, "")
				time.Sleep(3 * time.Minute)
				p.Expect(held, false, reauth.EndReviewTimeout)
			})
		})
	}
}

// What the API server said is remembered for as long as ever.
func TestClockJumpsDoNotChangeHowLongAnswersCount(t *testing.T) {
	for name, by := range authtest.Jumps {
		t.Run(name, func(t *testing.T) {
			onClock(t, func(p *reauthtest.Model, j *authtest.Clock) {
				alice := p.Know("alice")
				asks := func() (auth.Outcome, auth.Verdict) {
					result := p.Authn.Authenticate(context.Background(), alice)
					return result.Outcome, p.Authz.Authorize(context.Background(), reauthtest.Bob,
						reauthtest.Wants(t, "/api/v1/pods")).Verdict
				}
				check := func(who auth.Outcome, what auth.Verdict) {
					t.Helper()
					if w, v := asks(); w != who || v != what {
						t.Errorf("%s, %s; want %s, %s", w, v, who, what)
					}
				}
				check(auth.Authenticated, auth.Allowed)
				p.Cluster.Change(func() {
					delete(p.Cluster.Users, "token-of-alice")
					p.Cluster.Denied["bob pods"] = true
				})
				j.Jump(by)
				time.Sleep(auth.AnswerTTL - time.Second)
				check(auth.Authenticated, auth.Allowed) // nor are they forgotten: a jump makes no storm of reviews
				time.Sleep(time.Second)
				check(auth.Refused, auth.Denied)
				j.Jump(by)
				p.Cluster.Change(func() {
					p.Cluster.Users["token-of-alice"] = "alice"
					p.Cluster.Denied["bob pods"] = false
				})
				time.Sleep(auth.FailureTTL)
				if w, _ := asks(); w != auth.Authenticated {
					t.Errorf("the token is still %s", w)
				}
			})
		})
	}
}

// A certificate ends when its time is over, for requests and for watches: when the wall clock says
// so, or when it would have if it had not been set back.
func TestClockJumpsDoNotProlongCertificates(t *testing.T) {
	j := authtest.NewClock(t)
	authority := authtest.NewCA(t, "ca", j.Base())
	cert := authority.Issue(pkix.Name{CommonName: "alice"}, j.Base().Add(30*time.Minute))
	file := authtest.WriteCAFile(t, authtest.PEM(authority.Cert))
	for name, c := range map[string]struct{ by, ends time.Duration }{
		"back":                   {-50 * time.Minute, 30 * time.Minute},
		"forward":                {10 * time.Minute, 20 * time.Minute},
		"forward beyond its end": {2 * time.Hour, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			reauthtest.On(t, func(s *reauthtest.Setup) {
				useClock(s, j)
				ca, err := auth.NewAuthority(file, j, zap.NewNop())
				if err != nil {
					t.Fatal(err)
				}
				s.Authn.ClientCA = ca
			}, func(p *reauthtest.Model) {
				shows := auth.AuthnRequest{Peer: []*x509.Certificate{cert}}
				watch, _ := p.Watch(shows, "pods")
				time.Sleep(10*time.Minute - time.Since(p.Began))
				p.Expect(watch, true, "")
				j.Jump(c.by)
				if c.ends > 10*time.Minute {
					time.Sleep(c.ends - 10*time.Minute - 2*time.Second)
					p.Expect(watch, true, "")
					if result := p.Authn.Authenticate(context.Background(), shows); result.Outcome != auth.Authenticated {
						t.Errorf("2 s before its end: %s, %v", result.Outcome, result.Err)
					}
				}
				time.Sleep(30 * time.Second)
				p.Expect(watch, false, reauth.EndCredentialExpired)
				for range 3 {
					if result := p.Authn.Authenticate(context.Background(), shows); result.Outcome == auth.Authenticated {
						t.Errorf("after its end: %s", result.Outcome)
					}
					time.Sleep(time.Hour / 3)
				}
			})
		})
	}
}
