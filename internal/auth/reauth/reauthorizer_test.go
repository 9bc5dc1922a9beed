package reauth_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"spillway/internal/auth"
	"spillway/internal/auth/authtest"
	"spillway/internal/auth/reauth"
	"spillway/internal/auth/reauth/reauthtest"
	"spillway/internal/fakeapiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPermissionGoes(t *testing.T) {
	reauthtest.On(t, nil, func(p *reauthtest.Model) {
		alice, bob := p.Know("alice"), p.Know("bob")
		gone, _ := p.Watch(alice, "pods")
		other, _ := p.Watch(alice, "nodes")
		bobs, permit := p.Watch(bob, "pods")
		time.Sleep(5 * time.Minute)
		p.Expect(gone, true, "")
		p.Cluster.Change(func() { p.Cluster.Denied["alice pods"] = true })
		left := time.Now()
		time.Sleep(30 * time.Second)
		p.Expect(gone, false, reauth.EndForbidden)
		if _, at := gone.Ended(); at.Sub(left) > 26*time.Second {
			t.Errorf("it took %v", at.Sub(left))
		}
		p.Expect(other, true, "")
		p.Expect(bobs, true, "")
		// What was found is what the next request hears, too.
		if again, _ := p.Watch(alice, "pods"); again != nil {
			t.Error("she is admitted again")
		}
		p.Cluster.Change(func() { delete(p.Cluster.Denied, "alice pods") })
		time.Sleep(auth.AnswerTTL)
		if again, _ := p.Watch(alice, "pods"); again == nil {
			t.Error("she is not admitted again")
		}
		permit.Release()
		permit.Release()
		tokens, accesses := p.Asks()
		if tokens != 1 || accesses != 2 {
			t.Errorf("%d credentials and %d permissions are reviewed", tokens, accesses)
		}
	})
}

// The API server itself remembers a token for ten seconds, and yet the streams of one that is
// revoked end in time.
func TestTokenGoes(t *testing.T) {
	reauthtest.On(t, nil, func(p *reauthtest.Model) {
		request := p.Know("alice")
		one, _ := p.Watch(request, "pods")
		two, _ := p.Watch(request, "nodes")
		for range 40 {
			time.Sleep(time.Second)
			p.Authn.Authenticate(context.Background(), request) // keeps it remembered, here and there
		}
		p.Cluster.Change(func() { delete(p.Cluster.Users, "token-of-alice") })
		time.Sleep(30 * time.Second)
		p.Expect(one, false, reauth.EndUnauthenticated)
		p.Expect(two, false, reauth.EndUnauthenticated)
	})
}

func TestTokenReachesItsEnd(t *testing.T) {
	reauthtest.On(t, nil, func(p *reauthtest.Model) {
		end := time.Now().Add(41 * time.Second)
		token := authtest.JWT(fmt.Sprintf(`{"exp":%d}`, end.Unix()))
		p.Cluster.Change(func() { p.Cluster.Users[token] = "alice" })
		l, _ := p.Watch(reauthtest.WithToken(token), "pods")
		time.AfterFunc(time.Until(end), func() {
			p.Cluster.Change(func() { delete(p.Cluster.Users, token); clear(p.Cluster.Remembered) })
		})
		time.Sleep(time.Until(end) - 1)
		p.Expect(l, true, "")
		time.Sleep(time.Second)
		p.Expect(l, false, reauth.EndCredentialExpired)
		if _, at := l.Ended(); at.Sub(end) > 50*time.Millisecond {
			t.Errorf("it took %v", at.Sub(end))
		}
	})
}

func TestCertificateReachesItsEnd(t *testing.T) {
	var clients *authtest.CA
	name := ""
	reauthtest.On(t, func(s *reauthtest.Setup) {
		clients = authtest.NewCA(t, "clients", time.Now())
		name = authtest.WriteCAFile(t, authtest.PEM(clients.Cert))
		var err error
		if s.Authn.ClientCA, err = auth.NewAuthority(name, clock.RealClock{}, zap.NewNop()); err != nil {
			t.Fatal(err)
		}
	}, func(p *reauthtest.Model) {
		end := time.Now().Add(61 * time.Second)
		issue := func(user string, until time.Time) auth.AuthnRequest {
			return auth.AuthnRequest{Peer: []*x509.Certificate{clients.Issue(pkix.Name{CommonName: user}, until)}}
		}
		short, _ := p.Watch(issue("short", end), "pods")
		long, _ := p.Watch(issue("long", end.Add(time.Hour)), "pods")
		time.Sleep(time.Until(end) - time.Nanosecond)
		p.Expect(short, true, "")
		time.Sleep(time.Nanosecond)
		p.Expect(short, false, reauth.EndCredentialExpired)
		p.Expect(long, true, "")
		// What no authority vouches for any more ends with the next look.
		if err := os.WriteFile(name, authtest.PEM(authtest.NewCA(t, "others", time.Now()).Cert), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		p.Expect(long, false, reauth.EndUnauthenticated)
	})
}

// TestUpstreamIsAway shows that streams are paused in time, and not ended, while the API server
// does not answer, and that they go on when it does.
func TestUpstreamIsAway(t *testing.T) {
	reauthtest.On(t, nil, func(p *reauthtest.Model) {
		request := p.Know("alice")
		stays, _ := p.Watch(request, "pods")
		goes, _ := p.Watch(request, "nodes")
		time.Sleep(time.Minute)
		p.Cluster.Change(func() { p.Cluster.Failing = true })
		time.Sleep(30 * time.Second)
		p.Expect(stays, false, "")
		p.Expect(goes, false, "")
		before, _ := p.Cluster.CountReviews()
		time.Sleep(4 * time.Minute)
		p.Expect(stays, false, "")
		p.Cluster.Change(func() { p.Cluster.Failing = false; p.Cluster.Denied["alice nodes"] = true })
		time.Sleep(5 * time.Second)
		p.Expect(stays, true, "")
		p.Expect(goes, false, reauth.EndForbidden)
		if after, _ := p.Cluster.CountReviews(); after-before > 5 {
			t.Errorf("%d reviews to find out that it is back", after-before)
		}
		p.Cluster.Change(func() { p.Cluster.Failing = true })
		time.Sleep(30*time.Second + reauth.DefaultHoldMost)
		p.Expect(stays, false, reauth.EndReviewTimeout)
	})
}

// A reported change causes checks at once of the watches that it concerns.
func TestCheckAtOnce(t *testing.T) {
	reauthtest.On(t, nil, func(p *reauthtest.Model) {
		var streams []*reauthtest.Live
		for i := range 100 {
			l, _ := p.Watch(p.Know(fmt.Sprint("user-", i)), "pods")
			streams = append(streams, l)
		}
		synctest.Wait()
		tokens, accesses := p.Cluster.CountReviews()
		p.Cluster.Change(func() { p.Cluster.Denied["user-7 pods"] = true })
		p.Check(func(who *auth.Identity, what auth.Attributes) bool {
			return who.Name() == "user-7" && what.Resource == "pods"
		})
		time.Sleep(50 * time.Millisecond)
		for i, l := range streams {
			if i == 7 {
				p.Expect(l, false, reauth.EndForbidden)
			} else {
				p.Expect(l, true, "")
			}
		}
		if t2, a2 := p.Cluster.CountReviews(); t2-tokens > 3 || a2-accesses > 3 {
			t.Errorf("%d token reviews and %d access reviews for one", t2-tokens, a2-accesses)
		}
		// A watch that is admitted by an older review is reviewed, too.
		p.Check(func(*auth.Identity, auth.Attributes) bool { return false })
		p.Cluster.Change(func() { p.Cluster.Denied["user-8 pods"] = true })
		late, _ := p.Watch(reauthtest.WithToken("token-of-user-8"), "pods")
		other, _ := p.Watch(reauthtest.WithToken("token-of-user-8"), "nodes")
		time.Sleep(50 * time.Millisecond)
		p.Expect(other, true, "")
		p.Expect(late, true, "") // the same permission as a stream that is known already: its turn comes
		time.Sleep(30 * time.Second)
		p.Expect(late, false, reauth.EndForbidden)
	})
}

// TestOneReviewForEachQuestion shows that a thousand equal watches need one review.
func TestOneReviewForEachQuestion(t *testing.T) {
	reauthtest.On(t, nil, func(p *reauthtest.Model) {
		request := p.Know("alice")
		for range 1000 {
			p.Watch(request, "pods")
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		tokens, accesses := p.Cluster.CountReviews()
		if tokens > 2+600/15 || accesses > 2+600/25 {
			t.Errorf("%d token reviews and %d access reviews in ten minutes", tokens, accesses)
		}
	})
}

// TestRequestsConfirm shows that reviews for requests count for watches.
func TestRequestsConfirm(t *testing.T) {
	reauthtest.On(t, nil, func(p *reauthtest.Model) {
		request := p.Know("alice")
		l, _ := p.Watch(request, "pods")
		for range 600 {
			time.Sleep(time.Second)
			p.Authn.Authenticate(context.Background(), request)
		}
		p.Expect(l, true, "")
		if tokens, _ := p.Cluster.CountReviews(); tokens > 600/10+15 {
			t.Errorf("%d token reviews in ten minutes", tokens)
		}
	})
}

// TestThirtySeconds shows that no client receives events for longer than 30 s after it lost the
// permission, while permissions and tokens come and go, the API server is slow or away, and clients
// reconnect. It prints how long it took.
func TestThirtySeconds(t *testing.T) {
	var took []time.Duration
	for seed := range uint64(6) {
		reauthtest.On(t, func(s *reauthtest.Setup) {
			random := rand.New(rand.NewPCG(seed, 3))
			s.Reauth.Random, s.Reauth.MaxChecks = random.Float64, 8
		}, func(p *reauthtest.Model) { took = append(took, storm(p, seed)...) })
	}
	slices.Sort(took)
	if len(took) < 100 {
		t.Fatalf("only %d streams lost what they ran by", len(took))
	}
	t.Logf("%d streams: p50 %v, p99 %v, longest %v", len(took), took[len(took)/2], took[len(took)*99/100],
		took[len(took)-1])
}

// storm changes things at random for ten minutes, and returns how long streams went on without a
// right.
func storm(p *reauthtest.Model, seed uint64) (took []time.Duration) {
	random := rand.New(rand.NewPCG(seed, 5))
	resources := []string{"pods", "nodes", "secrets"}
	lost := map[string]time.Time{} // a user, whose token is gone, or "user resource": since when
	c := p.Cluster
	delays := rand.New(rand.NewPCG(seed, 9))
	c.Latency = func() time.Duration { return time.Duration(delays.Int64N(int64(40 * time.Millisecond))) } // with mu held
	type client struct {
		user, resource string
		live           *reauthtest.Live
		permit         *reauth.Lease
		counted        bool
	}
	var clients []*client
	for i := range 30 {
		for _, resource := range resources {
			user := fmt.Sprint("user-", i)
			p.Know(user)
			clients = append(clients, &client{user: user, resource: resource})
		}
	}
	note := func() { // with mu held
		for _, cl := range clients {
			_, known := c.Users["token-of-"+cl.user]
			for right, there := range map[string]bool{cl.user: known, cl.user + " " +
				cl.resource: !c.Denied[cl.user+" "+cl.resource]} {
				if there {
					delete(lost, right)
				} else if _, already := lost[right]; !already {
					lost[right] = time.Now()
				}
			}
		}
	}
	// since is when the first of the rights went that a client does not have now.
	since := func(cl *client) (first time.Time, gone bool) {
		for _, right := range []string{cl.user, cl.user + " " + cl.resource} {
			if at, missing := lost[right]; missing && (!gone || at.Before(first)) {
				first, gone = at, true
			}
		}
		return first, gone
	}
	for range 1200 {
		time.Sleep(500 * time.Millisecond)
		c.Change(func() {
			user := fmt.Sprint("user-", random.IntN(30))
			switch random.IntN(12) {
			case 0:
				delete(c.Users, "token-of-"+user)
			case 1, 2:
				c.Users["token-of-"+user] = user
			case 3:
				c.Denied[user+" "+resources[random.IntN(3)]] = true
			case 4, 5:
				delete(c.Denied, user+" "+resources[random.IntN(3)])
			case 6:
				c.Failing = random.IntN(10) == 0
			case 7:
				c.Failing = c.Failing && random.IntN(20) > 0
			}
			note()
		})
		synctest.Wait()
		for _, cl := range clients {
			if left, gone := since(cl); cl.live != nil && gone {
				end, at := cl.live.Ended()
				switch {
				case cl.live.Runs() && time.Since(left) >= 30*time.Second:
					p.T.Errorf("seed %d: %s still watches %s %v after losing the right", seed, cl.user, cl.resource, time.Since(left))
				case end != "" && !cl.counted && at.After(left):
					cl.counted = true
					took = append(took, at.Sub(left))
				}
			}
			if cl.live != nil {
				if end, _ := cl.live.Ended(); end != "" || random.IntN(100) == 0 {
					cl.permit.Release()
					cl.live = nil
				}
			}
		}
		i := random.IntN(len(clients))
		for _, cl := range clients[i:min(i+20, len(clients))] {
			if cl.live == nil {
				cl.live, cl.permit = p.Watch(reauthtest.WithToken("token-of-"+cl.user), cl.resource)
				cl.counted = false
			}
		}
	}
	return took
}

// blockedTransport is a transport whose access reviews of one user are never answered.
type blockedTransport struct {
	*authtest.Cluster
	user string
	on   atomic.Bool
}

func (s *blockedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !s.on.Load() || r.URL.Path != authtest.AccessReviews {
		return s.Cluster.RoundTrip(r)
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(raw, []byte(`"user":"`+s.user+`"`)) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	return s.Cluster.RoundTrip(r)
}

// A user with thousands of permissions whose reviews time out holds up no other user's watch, and a
// right of another user goes as soon as ever.
func TestUserWithSlowReviewsDelaysNoOther(t *testing.T) {
	slow := &blockedTransport{user: "many"}
	reauthtest.On(t, func(s *reauthtest.Setup) {
		slow.Cluster = s.Cluster
		tokens := s.Authn.Reviewer
		s.Ask(slow)
		s.Authn.Reviewer = tokens
	}, func(p *reauthtest.Model) {
		many := p.Know("many")
		for i := range 4000 {
			p.Watch(many, fmt.Sprintf("namespaces/ns-%d/pods", i))
		}
		slow.on.Store(true)
		stays, _ := p.Watch(p.Know("alice"), "pods")
		goes, _ := p.Watch(p.Know("bob"), "pods")
		time.Sleep(5 * time.Minute)
		p.Expect(goes, true, "")
		p.Cluster.Change(func() { p.Cluster.Denied["bob pods"] = true })
		left := time.Now()
		time.Sleep(30 * time.Second)
		p.Expect(goes, false, reauth.EndForbidden)
		if _, at := goes.Ended(); at.Sub(left) > reauth.DefaultSweep+reauth.Grace {
			t.Errorf("it took %v", at.Sub(left))
		}
		time.Sleep(5 * time.Minute)
		p.Expect(stays, true, "")
		for _, l := range []*reauthtest.Live{stays, goes} {
			if slices.Contains(l.Calls(), "hold") {
				t.Errorf("a watch of another user was sent %q", l.Calls())
			}
		}
	})
}

// Over a real connection, with the time in hand: asked after a sweep, and denied.
func TestReauthorizerOverHTTP(t *testing.T) {
	server := fakeapiserver.New(fakeapiserver.Options{})
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	own := &http.Transport{}
	t.Cleanup(own.CloseIdleConnections)
	reviews := server.Reviews()
	reviews.Know("t", authenticationv1.UserInfo{Username: "alice", Groups: []string{"dev"}})
	reviews.Allow(func(authorizationv1.SubjectAccessReviewSpec) bool { return true })
	reviewer, now := auth.NewReviewer(base, own, zap.NewNop()), clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	authn := auth.NewAuthenticator(auth.AuthenticatorOptions{Reviewer: reviewer, Clock: now})
	authz := auth.NewAuthorizer(auth.AuthorizerOptions{Reviewer: reviewer, Clock: now})
	r := reauth.NewReauthorizer(reauth.ReauthorizerOptions{Authenticator: authn, Authorizer: authz, Clock: now,
		Random: func() float64 { return 0 }})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	what := reauthtest.Wants(t, "/api/v1/pods?watch=1")
	result := authn.Authenticate(ctx, reauthtest.WithToken("t"))
	ended := make(chan reauth.End, 1)
	r.Admit(result, what, authz.Authorize(ctx, result.Identity, what), endRecorder(ended))
	reviews.Allow(func(authorizationv1.SubjectAccessReviewSpec) bool { return false })
	r.Check(func(who *auth.Identity, _ auth.Attributes) bool { return who.Name() == "alice" })
	if end := <-ended; end != reauth.EndForbidden {
		t.Errorf("ended %q", end)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// endRecorder is a stream that tells of its end.
type endRecorder chan reauth.End

func (endRecorder) Pause()             {}
func (endRecorder) Resume()            {}
func (e endRecorder) End(w reauth.End) { e <- w }

// panickingTransport is a transport that panics while it is on.
type panickingTransport struct {
	next http.RoundTripper
	on   atomic.Bool
}

func (b *panickingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.on.Load() {
		panic("secret")
	}
	return b.next.RoundTrip(r)
}

// TestCheckPanics shows that a review that panics counts as not answered: the stream is paused, and
// goes on after the next one.
func TestCheckPanics(t *testing.T) {
	bug := &panickingTransport{}
	core, logs := observer.New(zap.DebugLevel)
	reauthtest.On(t, func(s *reauthtest.Setup) {
		bug.next = s.Cluster
		permissions := s.Authz.Reviewer
		s.Ask(bug)
		s.Authz.Reviewer = permissions
		s.Reauth.Log = zap.New(core)
	}, func(p *reauthtest.Model) {
		l, permit := p.Watch(p.Know("alice"), "pods")
		time.Sleep(time.Minute)
		p.Expect(l, true, "")
		bug.on.Store(true)
		time.Sleep(time.Minute)
		p.Expect(l, false, "")
		bug.on.Store(false)
		time.Sleep(time.Minute)
		p.Expect(l, true, "")
		permit.Release()
	})
	lines := logs.FilterMessage("BUG: a check of a watch panicked; please report this").All()
	if len(lines) == 0 {
		t.Fatalf("the log says nothing of it: %v", logs.All())
	}
	if fields := lines[0].ContextMap(); fields["panic"] != "string" || fields["check"] != "credential" ||
		!strings.Contains(fmt.Sprint(fields["stack"]), "RoundTrip") {
		t.Errorf("it says %v", fields)
	}
}
