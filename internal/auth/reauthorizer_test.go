package auth

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
)

// cluster answers reviews inside a bubble with time of its own: as an http.RoundTripper, since sockets would leave it. Like kube-apiserver
// it remembers for ten seconds that a token is good.
type cluster struct {
	mu         sync.Mutex
	users      map[string]string    // token -> user
	remembered map[string]time.Time // token -> until when it is not looked at
	groups     map[string][]string
	denied     map[string]bool // "user resource"
	latency    func() time.Duration
	failing    bool
	tokens     []time.Time
	accesses   []time.Time
}

func newCluster() *cluster {
	return &cluster{
		users: map[string]string{}, remembered: map[string]time.Time{}, groups: map[string][]string{}, denied: map[string]bool{},
		latency: func() time.Duration { return 10 * time.Millisecond },
	}
}

var errDown = errors.New("connection refused")

// RoundTrip implements http.RoundTripper. What is told is true half-way between question and answer.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	half := c.latency() / 2
	if c.failing {
		c.mu.Unlock()
		return nil, errDown
	}
	c.mu.Unlock()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if err := wait(r.Context(), half); err != nil {
		return nil, err
	}
	answer := c.answer(r.URL.Path, raw)
	if err := wait(r.Context(), half); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(answer)), Request: r}, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *cluster) answer(path string, raw []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var answer any
	if path == tokenReviews {
		c.tokens = append(c.tokens, time.Now())
		var review authenticationv1.TokenReview
		_ = json.Unmarshal(raw, &review)
		token := review.Spec.Token
		name, known := c.users[token]
		switch {
		case known:
			c.remembered[token] = time.Now().Add(upstreamTokens)
		case time.Now().Before(c.remembered[token]):
			name, known = strings.TrimPrefix(token, "token-of-"), true
		}
		if known {
			review.Status.Authenticated = true
			review.Status.User = authenticationv1.UserInfo{Username: name, Groups: c.groups[name]}
		}
		answer = review
	} else {
		c.accesses = append(c.accesses, time.Now())
		var review authorizationv1.SubjectAccessReview
		_ = json.Unmarshal(raw, &review)
		review.Status.Allowed = !c.denied[review.Spec.User+" "+review.Spec.ResourceAttributes.Resource]
		answer = review
	}
	encoded, _ := json.Marshal(answer)
	return encoded
}

// change changes what is true.
func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *cluster) asked() (tokens, accesses int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tokens), len(c.accesses)
}

// live is a stream that many look at.
type live struct {
	mu sync.Mutex
	recorded
	stopped time.Time // when it stopped sending, if it has
}

func (l *live) Hold()     { l.do(l.recorded.Hold) }
func (l *live) Resume()   { l.do(l.recorded.Resume) }
func (l *live) End(e End) { l.do(func() { l.recorded.End(e) }) }

func (l *live) do(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ran := !l.held && l.end == ""
	if f(); ran {
		l.stopped = time.Now()
	}
}

func (l *live) runs() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.held && l.end == ""
}

// ended is why it ended, and when it stopped sending.
func (l *live) ended() (End, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end, l.stopped
}

// patrol is everything between clients and a cluster.
type patrol struct {
	t       *testing.T
	cluster *cluster
	authn   *Authenticator
	authz   *Authorizer
	*Reauthorizer
	began time.Time
}

// onPatrol runs a test in a bubble, with a Reauthorizer at work.
func onPatrol(t *testing.T, change func(*AuthenticatorOptions, *ReauthorizerOptions), test func(*patrol)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		reviewer := NewReviewer(&url.URL{Scheme: "https", Host: "cluster"}, c, zap.NewNop())
		ao := AuthenticatorOptions{Reviewer: reviewer}
		random := rand.New(rand.NewPCG(1, 1))
		ro := ReauthorizerOptions{Random: random.Float64}
		if change != nil {
			change(&ao, &ro)
		}
		p := &patrol{t: t, cluster: c, authn: NewAuthenticator(ao), authz: NewAuthorizer(AuthorizerOptions{Reviewer: reviewer}), began: time.Now()}
		ro.Authenticator, ro.Authorizer = p.authn, p.authz
		p.Reauthorizer = NewReauthorizer(ro)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		test(p)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func (p *patrol) know(user string) Request {
	p.cluster.change(func() { p.cluster.users["token-of-"+user] = user })
	return withToken("token-of-" + user)
}

// watch lets a request watch a resource; nil if it may not.
func (p *patrol) watch(r Request, resource string) (*live, *Permit) {
	p.t.Helper()
	result := p.authn.Authenticate(context.Background(), r)
	if result.Outcome != Authenticated {
		return nil, nil
	}
	what := wants(p.t, "/api/v1/"+resource+"?watch=1")
	decision := p.authz.Authorize(context.Background(), result.Identity, what)
	if decision.Verdict != Allowed {
		return nil, nil
	}
	l := &live{}
	return l, p.Admit(result, what, decision, l)
}

// check checks how a stream stands.
func (p *patrol) check(l *live, running bool, end End) {
	p.t.Helper()
	synctest.Wait()
	if got, _ := l.ended(); l.runs() != running || got != end {
		p.t.Errorf("after %v: runs %v, ended %q; want %v, %q", time.Since(p.began), l.runs(), got, running, end)
	}
}

func TestPermissionGoes(t *testing.T) {
	onPatrol(t, nil, func(p *patrol) {
		alice, bob := p.know("alice"), p.know("bob")
		gone, _ := p.watch(alice, "pods")
		other, _ := p.watch(alice, "nodes")
		bobs, permit := p.watch(bob, "pods")
		time.Sleep(5 * time.Minute)
		p.check(gone, true, "")
		p.cluster.change(func() { p.cluster.denied["alice pods"] = true })
		left := time.Now()
		time.Sleep(30 * time.Second)
		p.check(gone, false, EndForbidden)
		if _, at := gone.ended(); at.Sub(left) > 26*time.Second {
			t.Errorf("it took %v", at.Sub(left))
		}
		p.check(other, true, "")
		p.check(bobs, true, "")
		// What was found is what the next request hears, too.
		if again, _ := p.watch(alice, "pods"); again != nil {
			t.Error("she is let in again")
		}
		p.cluster.change(func() { delete(p.cluster.denied, "alice pods") })
		time.Sleep(AllowedFor)
		if again, _ := p.watch(alice, "pods"); again == nil {
			t.Error("she is not let in again")
		}
		permit.Release()
		permit.Release()
		tokens, accesses := len(p.mu.rota.credentials), len(p.mu.rota.permissions)
		if tokens != 1 || accesses != 2 {
			t.Errorf("%d credentials and %d permissions are asked about", tokens, accesses)
		}
	})
}

// Upstream itself remembers a token for ten seconds, and yet the streams of one that is revoked end in time.
func TestTokenGoes(t *testing.T) {
	onPatrol(t, nil, func(p *patrol) {
		request := p.know("alice")
		one, _ := p.watch(request, "pods")
		two, _ := p.watch(request, "nodes")
		for range 40 {
			time.Sleep(time.Second)
			p.authn.Authenticate(context.Background(), request) // keeps it remembered, here and there
		}
		p.cluster.change(func() { delete(p.cluster.users, "token-of-alice") })
		time.Sleep(30 * time.Second)
		p.check(one, false, EndUnauthenticated)
		p.check(two, false, EndUnauthenticated)
	})
}

func TestTokenReachesItsEnd(t *testing.T) {
	onPatrol(t, nil, func(p *patrol) {
		end := time.Now().Add(41 * time.Second)
		token := jwt(fmt.Sprintf(`{"exp":%d}`, end.Unix()))
		p.cluster.change(func() { p.cluster.users[token] = "alice" })
		l, _ := p.watch(withToken(token), "pods")
		time.AfterFunc(time.Until(end), func() {
			p.cluster.change(func() { delete(p.cluster.users, token); clear(p.cluster.remembered) })
		})
		time.Sleep(time.Until(end) - 1)
		p.check(l, true, "")
		time.Sleep(time.Second)
		p.check(l, false, EndExpired)
		if _, at := l.ended(); at.Sub(end) > 50*time.Millisecond {
			t.Errorf("it took %v", at.Sub(end))
		}
	})
}

func TestCertificateReachesItsEnd(t *testing.T) {
	var clients *ca
	name := ""
	onPatrol(t, func(o *AuthenticatorOptions, _ *ReauthorizerOptions) {
		clients = newCA(t, "clients", time.Now())
		name = write(t, pemOf(clients.cert))
		var err error
		if o.ClientCA, err = NewAuthority(name, clock.RealClock{}, zap.NewNop()); err != nil {
			t.Fatal(err)
		}
	}, func(p *patrol) {
		end := time.Now().Add(61 * time.Second)
		issue := func(user string, until time.Time) Request {
			return Request{Peer: []*x509.Certificate{clients.issue(pkix.Name{CommonName: user}, until)}}
		}
		short, _ := p.watch(issue("short", end), "pods")
		long, _ := p.watch(issue("long", end.Add(time.Hour)), "pods")
		time.Sleep(time.Until(end) - time.Nanosecond)
		p.check(short, true, "")
		time.Sleep(time.Nanosecond)
		p.check(short, false, EndExpired)
		p.check(long, true, "")
		// What no authority vouches for any more ends with the next look.
		if err := os.WriteFile(name, pemOf(newCA(t, "others", time.Now()).cert), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		p.check(long, false, EndUnauthenticated)
	})
}

// While upstream cannot be asked, streams are held in time and not ended; when it can be, they go on.
func TestUpstreamIsAway(t *testing.T) {
	onPatrol(t, nil, func(p *patrol) {
		request := p.know("alice")
		stays, _ := p.watch(request, "pods")
		goes, _ := p.watch(request, "nodes")
		time.Sleep(time.Minute)
		p.cluster.change(func() { p.cluster.failing = true })
		time.Sleep(30 * time.Second)
		p.check(stays, false, "")
		p.check(goes, false, "")
		before, _ := p.cluster.asked()
		time.Sleep(4 * time.Minute)
		p.check(stays, false, "")
		p.cluster.change(func() { p.cluster.failing = false; p.cluster.denied["alice nodes"] = true })
		time.Sleep(5 * time.Second)
		p.check(stays, true, "")
		p.check(goes, false, EndForbidden)
		if after, _ := p.cluster.asked(); after-before > 5 {
			t.Errorf("%d reviews to find out that it is back", after-before)
		}
		p.cluster.change(func() { p.cluster.failing = true })
		time.Sleep(30*time.Second + defaultHoldMost)
		p.check(stays, false, EndUnconfirmed)
	})
}

// A change is looked at when it is told of, for those whom it concerns.
func TestCheckAtOnce(t *testing.T) {
	onPatrol(t, nil, func(p *patrol) {
		var streams []*live
		for i := range 100 {
			l, _ := p.watch(p.know(fmt.Sprint("user-", i)), "pods")
			streams = append(streams, l)
		}
		synctest.Wait()
		tokens, accesses := p.cluster.asked()
		p.cluster.change(func() { p.cluster.denied["user-7 pods"] = true })
		p.Check(func(who *Identity, what Attributes) bool { return who.name == "user-7" && what.Resource == "pods" })
		time.Sleep(50 * time.Millisecond)
		for i, l := range streams {
			if i == 7 {
				p.check(l, false, EndForbidden)
			} else {
				p.check(l, true, "")
			}
		}
		if t2, a2 := p.cluster.asked(); t2-tokens > 3 || a2-accesses > 3 {
			t.Errorf("%d token reviews and %d access reviews for one", t2-tokens, a2-accesses)
		}
		// Who comes in by what was known before the change is looked at, too.
		p.Check(func(*Identity, Attributes) bool { return false })
		p.cluster.change(func() { p.cluster.denied["user-8 pods"] = true })
		late, _ := p.watch(withToken("token-of-user-8"), "pods")
		other, _ := p.watch(withToken("token-of-user-8"), "nodes")
		time.Sleep(50 * time.Millisecond)
		p.check(other, true, "")
		p.check(late, true, "") // the same permission as a stream that is known already: its turn comes
		time.Sleep(30 * time.Second)
		p.check(late, false, EndForbidden)
	})
}

// A thousand watches of one kind are asked about once.
func TestAskedPerQuestion(t *testing.T) {
	onPatrol(t, nil, func(p *patrol) {
		request := p.know("alice")
		for range 1000 {
			p.watch(request, "pods")
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		tokens, accesses := p.cluster.asked()
		if tokens > 2+600/15 || accesses > 2+600/25 {
			t.Errorf("%d token reviews and %d access reviews in ten minutes", tokens, accesses)
		}
	})
}

// Who sends requests all the time has been asked about by those.
func TestRequestsConfirm(t *testing.T) {
	onPatrol(t, nil, func(p *patrol) {
		request := p.know("alice")
		l, _ := p.watch(request, "pods")
		for range 600 {
			time.Sleep(time.Second)
			p.authn.Authenticate(context.Background(), request)
		}
		p.check(l, true, "")
		if tokens, _ := p.cluster.asked(); tokens > 600/10+15 {
			t.Errorf("%d token reviews in ten minutes", tokens)
		}
	})
}

// Nobody is sent anything for 30 s after he may not have it any more, whatever happens: permissions and tokens that come and go, an apiserver
// that is slow or away, clients that come back. How long it took is printed.
func TestThirtySeconds(t *testing.T) {
	var took []time.Duration
	for seed := range uint64(6) {
		onPatrol(t, func(_ *AuthenticatorOptions, o *ReauthorizerOptions) {
			random := rand.New(rand.NewPCG(seed, 3))
			o.Random, o.MaxChecks = random.Float64, 8
		}, func(p *patrol) { took = append(took, p.storm(seed)...) })
	}
	slices.Sort(took)
	if len(took) < 100 {
		t.Fatalf("only %d streams lost what they ran by", len(took))
	}
	t.Logf("%d streams: p50 %v, p99 %v, longest %v", len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}

// storm changes things at random for ten minutes, and returns how long streams went on without a right.
func (p *patrol) storm(seed uint64) (took []time.Duration) {
	random := rand.New(rand.NewPCG(seed, 5))
	resources := []string{"pods", "nodes", "secrets"}
	lost := map[string]time.Time{} // a user, whose token is gone, or "user resource": since when
	c := p.cluster
	delays := rand.New(rand.NewPCG(seed, 9))
	c.latency = func() time.Duration { return time.Duration(delays.Int64N(int64(40 * time.Millisecond))) } // with mu held
	type client struct {
		user, resource string
		live           *live
		permit         *Permit
		counted        bool
	}
	var clients []*client
	for i := range 30 {
		for _, resource := range resources {
			user := fmt.Sprint("user-", i)
			p.know(user)
			clients = append(clients, &client{user: user, resource: resource})
		}
	}
	note := func() { // with mu held
		for _, cl := range clients {
			_, known := c.users["token-of-"+cl.user]
			for right, there := range map[string]bool{cl.user: known, cl.user + " " + cl.resource: !c.denied[cl.user+" "+cl.resource]} {
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
		c.change(func() {
			user := fmt.Sprint("user-", random.IntN(30))
			switch random.IntN(12) {
			case 0:
				delete(c.users, "token-of-"+user)
			case 1, 2:
				c.users["token-of-"+user] = user
			case 3:
				c.denied[user+" "+resources[random.IntN(3)]] = true
			case 4, 5:
				delete(c.denied, user+" "+resources[random.IntN(3)])
			case 6:
				c.failing = random.IntN(10) == 0
			case 7:
				c.failing = c.failing && random.IntN(20) > 0
			}
			note()
		})
		synctest.Wait()
		for _, cl := range clients {
			if left, gone := since(cl); cl.live != nil && gone {
				end, at := cl.live.ended()
				switch {
				case cl.live.runs() && time.Since(left) >= 30*time.Second:
					p.t.Errorf("seed %d: %s still watches %s %v after he may not", seed, cl.user, cl.resource, time.Since(left))
				case end != "" && !cl.counted && at.After(left):
					cl.counted = true
					took = append(took, at.Sub(left))
				}
			}
			if cl.live != nil {
				if end, _ := cl.live.ended(); end != "" || random.IntN(100) == 0 {
					cl.permit.Release()
					cl.live = nil
				}
			}
		}
		i := random.IntN(len(clients))
		for _, cl := range clients[i:min(i+20, len(clients))] {
			if cl.live == nil {
				cl.live, cl.permit = p.watch(withToken("token-of-"+cl.user), cl.resource)
				cl.counted = false
			}
		}
	}
	return took
}

// stuck is a transport whose access reviews of one user are never answered.
type stuck struct {
	*cluster
	user string
	on   atomic.Bool
}

func (s *stuck) RoundTrip(r *http.Request) (*http.Response, error) {
	if !s.on.Load() || r.URL.Path != accessReviews {
		return s.cluster.RoundTrip(r)
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
	return s.cluster.RoundTrip(r)
}

// A user with thousands of permissions whose reviews time out holds up no other user's watch, and a right
// of another user goes as soon as ever.
func TestUserWithSlowReviewsDelaysNoOther(t *testing.T) {
	s := &stuck{user: "many"}
	onPatrol(t, nil, func(p *patrol) {
		s.cluster = p.cluster
		reviewer := NewReviewer(&url.URL{Scheme: "https", Host: "cluster"}, s, zap.NewNop())
		p.authz.reviews.ask = func(ctx context.Context, q question) (authorizationv1.SubjectAccessReviewStatus, error) {
			return reviewer.access(ctx, q.spec())
		}
		many := p.know("many")
		for i := range 4000 {
			p.watch(many, fmt.Sprintf("namespaces/ns-%d/pods", i))
		}
		s.on.Store(true)
		stays, _ := p.watch(p.know("alice"), "pods")
		goes, _ := p.watch(p.know("bob"), "pods")
		time.Sleep(5 * time.Minute)
		p.check(goes, true, "")
		p.cluster.change(func() { p.cluster.denied["bob pods"] = true })
		left := time.Now()
		time.Sleep(30 * time.Second)
		p.check(goes, false, EndForbidden)
		if _, at := goes.ended(); at.Sub(left) > defaultSweep+grace {
			t.Errorf("it took %v", at.Sub(left))
		}
		time.Sleep(5 * time.Minute)
		p.check(stays, true, "")
		for _, l := range []*live{stays, goes} {
			if slices.Contains(l.told, "hold") {
				t.Errorf("a watch of another user was sent %q", l.told)
			}
		}
	})
}

// Over a real connection, with the time in hand: asked after a sweep, and denied.
func TestReauthorizerOverHTTP(t *testing.T) {
	w := newWorld(t)
	w.reviews.Know("t", alice)
	w.reviews.Allow(allowed)
	authn, authz := w.authenticator(), w.authorizer()
	r := NewReauthorizer(ReauthorizerOptions{Authenticator: authn, Authorizer: authz, Clock: w.clock, Random: func() float64 { return 0 }})
	ctx, cancel := context.WithCancel(w.ctx())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	what := wants(t, "/api/v1/pods?watch=1")
	result := authn.Authenticate(ctx, withToken("t"))
	ended := make(chan End, 1)
	r.Admit(result, what, authz.Authorize(ctx, result.Identity, what), endsOnly(ended))
	w.reviews.Allow(func(authorizationv1.SubjectAccessReviewSpec) bool { return false })
	r.Check(func(who *Identity, _ Attributes) bool { return who.name == "alice" })
	if end := <-ended; end != EndForbidden {
		t.Errorf("ended %q", end)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// endsOnly is a stream that tells of its end.
type endsOnly chan End

func (endsOnly) Hold()       {}
func (endsOnly) Resume()     {}
func (e endsOnly) End(w End) { e <- w }

// buggy is a transport that panics while it is told to.
type buggy struct {
	next http.RoundTripper
	on   atomic.Bool
}

func (b *buggy) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.on.Load() {
		panic("secret")
	}
	return b.next.RoundTrip(r)
}

// A check that runs into a bug counts as one that could not be asked: the stream is held, and goes on when it is.
func TestCheckPanics(t *testing.T) {
	bug := &buggy{}
	core, logs := observer.New(zap.DebugLevel)
	onPatrol(t, func(ao *AuthenticatorOptions, ro *ReauthorizerOptions) {
		ao.Reviewer = NewReviewer(&url.URL{Scheme: "https", Host: "cluster"}, bug, zap.NewNop())
		ro.Log = zap.New(core)
	}, func(p *patrol) {
		bug.next = p.cluster
		l, permit := p.watch(p.know("alice"), "pods")
		time.Sleep(time.Minute)
		p.check(l, true, "")
		bug.on.Store(true)
		time.Sleep(time.Minute)
		p.check(l, false, "")
		bug.on.Store(false)
		time.Sleep(time.Minute)
		p.check(l, true, "")
		permit.Release()
	})
	lines := logs.FilterMessage("BUG: a check of a watch panicked; please report this").All()
	if len(lines) == 0 {
		t.Fatalf("the log says nothing of it: %v", logs.All())
	}
	if fields := lines[0].ContextMap(); fields["panic"] != "string" || fields["check"] != "credential" || !strings.Contains(fmt.Sprint(fields["stack"]), "RoundTrip") {
		t.Errorf("it says %v", fields)
	}
}
