package reauth

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"spillway/internal/auth"
	"spillway/internal/auth/authtest"
)

// recorded is a stream that notes the calls of its methods.
type recorded struct {
	held bool
	end  End
	told []string
}

func (s *recorded) Pause()  { s.held = true; s.told = append(s.told, "hold") }
func (s *recorded) Resume() { s.held = false; s.told = append(s.told, "resume") }
func (s *recorded) End(e End) {
	s.end = e
	s.told = append(s.told, "end "+string(e))
}

// named is an identity.
func named(name string, groups ...string) *auth.Identity {
	return auth.NewIdentity(authenticationv1.UserInfo{Username: name, Groups: groups})
}

// digestOf stands for anything that fmt prints in full.
func digestOf(of ...any) auth.Digest { return sha256.Sum256(fmt.Appendf(nil, "%q", of)) }

// manualSchedule is a schedule that a test drives by hand.
type manualSchedule struct {
	t        *testing.T
	schedule *reviewSchedule
	now      time.Time
}

var start = time.Unix(1_800_000_000, 0)

func newDuty(t *testing.T, random func() float64) *manualSchedule {
	d := &manualSchedule{t: t, now: start}
	d.schedule = newReviewSchedule(scheduleOptions{
		sweep: 25 * time.Second, holdTimeout: time.Minute, maxChecks: 4, random: random,
		key:    func(who *auth.Identity, what auth.Attributes) auth.Digest { return digestOf(who.UserInfo(), what) },
		recall: func(*check) (time.Time, *auth.Identity, bool) { return time.Time{}, nil, false },
	})
	return d
}

// admit admits a stream of a user.
func (d *manualSchedule) admit(name, resource string) (*Lease, *recorded) {
	s := &recorded{}
	p := &Lease{stream: s}
	d.schedule.admit(p, d.proven(name, name, d.now), auth.Attributes{Verb: "watch", Resource: resource}, d.now, d.now)
	return p, s
}

// proven is the result of a valid token of a user.
func (d *manualSchedule) proven(token, name string, at time.Time) auth.Result {
	return auth.Result{
		Outcome: auth.Authenticated, Identity: named(name), At: at,
		Credential: auth.NewTokenCredential(digestOf(token), auth.NewSecret(token), time.Time{}),
	}
}

// provenByCertificate is the result of the certificate of a user while it was valid. It ends at a
// whole second.
func provenByCertificate(t *testing.T, name string, end time.Time) auth.Result {
	t.Helper()
	ca := authtest.NewCA(t, "clients", time.Now())
	authority, err := auth.NewAuthority(authtest.WriteCAFile(t, authtest.PEM(ca.Cert)), clock.RealClock{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	authenticator := auth.NewAuthenticator(auth.AuthenticatorOptions{
		ClientCA: authority, Clock: clocktesting.NewFakePassiveClock(end.Add(-time.Minute)),
	})
	result := authenticator.Authenticate(t.Context(),
		auth.AuthnRequest{Peer: []*x509.Certificate{ca.Issue(pkix.Name{CommonName: name}, end)}})
	if result.Outcome != auth.Authenticated || !result.Credential.IsCertificate() {
		t.Fatalf("authenticated as %+v", result)
	}
	return result
}

// turn does what is to be done, and returns the checks to be carried out.
func (d *manualSchedule) turn() []*check {
	t := d.schedule.due(d.now)
	for _, tell := range t.calls {
		tell()
	}
	if !t.wake.IsZero() && !t.wake.After(d.now) {
		d.t.Fatalf("what is due is left undone: %v at %v", t.wake, d.now)
	}
	d.consistent()
	return t.reviews
}

// consistent checks what must be true of a schedule between two calls.
func (d *manualSchedule) consistent() {
	d.t.Helper()
	r := d.schedule
	held := map[*Lease]bool{}
	for i, c := range r.deadlines {
		if parent := (i - 1) / 2; i > 0 && r.deadlines.Less(i, parent) || !c.due.Equal(c.wake(r.holdTimeout)) {
			d.t.Fatalf("the agenda is out of order at %d", i)
		}
		if !c.InHeap() || len(c.permits) == 0 || r.of(c.kind)[c.key] != c {
			d.t.Fatalf("a check at %d, in the heap: %v, of %d permits", i, c.InHeap(), len(c.permits))
		}
		for p := range c.permits {
			if p.over || p.credential != c && p.permission != c {
				d.t.Fatal("a check of a permit that does not run by it")
			}
			holds := 0
			for _, of := range []*check{p.credential, p.permission} {
				if of.isHeld {
					holds++
				}
			}
			if holds != p.holds {
				d.t.Fatalf("a permit with %d holds counts %d", holds, p.holds)
			}
			held[p] = holds > 0
		}
	}
	count := 0
	for _, h := range held {
		if h {
			count++
		}
	}
	checks := len(r.credentials) + len(r.permissions)
	if count != r.held || len(r.deadlines) != checks || r.queue.underway > r.maxChecks {
		d.t.Fatalf("%d held, counted %d; %d checks have a deadline, %d are known; %d under way",
			count, r.held, len(r.deadlines), checks, r.queue.underway)
	}
	d.consistentQueue()
}

// consistentQueue checks that the queue counts each user's checks, and has each user in turn once.
func (d *manualSchedule) consistentQueue() {
	d.t.Helper()
	q := d.schedule.queue
	asking, due := 0, 0
	for name, u := range q.users {
		if u.name != name || u.underway < 0 || u.underway == 0 && len(u.due) == 0 {
			d.t.Fatalf("%q is kept as %q, with %d checks under way and %d due", u.name, name, u.underway, len(u.due))
		}
		asking += u.underway
		if len(u.due) > 0 {
			due++
		}
	}
	turns := map[*userQueue]bool{}
	for _, u := range q.turns {
		turns[u] = true
		if q.users[u.name] != u || len(u.due) == 0 {
			d.t.Fatalf("%q has a turn and %d checks that are due", u.name, len(u.due))
		}
	}
	if asking != q.underway || len(turns) != due || len(q.turns) != due {
		d.t.Fatalf("%d checks under way, counted %d; %d users with due ones, %d turns", asking, q.underway, due, len(q.turns))
	}
}

// found reports the result of a review that was sent now.
func (d *manualSchedule) found(c *check, v auth.Verdict) {
	f := reviewResult{verdict: v, at: d.now, end: EndForbidden}
	if c.kind == ofCredential {
		f.end, f.who = EndUnauthenticated, c.who
	}
	d.schedule.handleResult(c, f, d.now)
	d.consistent()
}

// TestRotaHolds shows that a permission is reviewed a sweep after its last review, that its streams
// are paused if there is no answer in time, and that they go on after an answer.
func TestRotaHolds(t *testing.T) {
	d := newDuty(t, func() float64 { return 0 })
	_, s := d.admit("alice", "pods")
	d.now = start.Add(15 * time.Second)
	credential := d.turn()
	if len(credential) != 1 || credential[0].kind != ofCredential {
		t.Fatalf("at 15 s: %d checks", len(credential))
	}
	d.found(credential[0], auth.Allowed)
	d.now = start.Add(25*time.Second - 1)
	if asked := d.turn(); len(asked) != 0 {
		t.Fatalf("before its time: %d checks", len(asked))
	}
	d.now = start.Add(25 * time.Second)
	permission := d.turn()
	if len(permission) != 1 || permission[0].kind != ofPermission {
		t.Fatalf("at 25 s: %d checks", len(permission))
	}
	d.now = start.Add(29*time.Second - 1)
	if d.turn(); s.held {
		t.Error("held too early")
	}
	d.now = start.Add(29 * time.Second)
	if d.turn(); !s.held || d.schedule.held != 1 {
		t.Error("not held")
	}
	d.now = start.Add(29500 * time.Millisecond)
	d.found(permission[0], auth.Allowed)
	if d.turn(); s.held || !slices.Equal(s.told, []string{"hold", "resume"}) {
		t.Errorf("not resumed: %q", s.told)
	}
}

// TestRotaGivesUp shows that a review that is not answered is sent again, with growing pauses, and
// that its streams end after a long time.
func TestRotaGivesUp(t *testing.T) {
	d := newDuty(t, func() float64 { return 0 })
	_, s := d.admit("alice", "pods")
	tries := 0
	for ; s.end == "" && d.now.Before(start.Add(10*time.Minute)); d.now = d.now.Add(50 * time.Millisecond) {
		for _, c := range d.turn() {
			tries++
			d.found(c, auth.Unreviewed)
		}
	}
	d.turn()
	// The credential's 19 s come first, and then its minute.
	if s.end != EndReviewTimeout || d.now.Sub(start) > 80*time.Second || len(d.schedule.deadlines) != 0 {
		t.Errorf("%q after %v", s.end, d.now.Sub(start))
	}
	if tries < 20 || tries > 60 {
		t.Errorf("%d tries", tries)
	}
}

// A herd's questions are spread over the sweep, in the first and in all later ones.
func TestRotaSpreads(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	d := newDuty(t, random.Float64)
	d.schedule.maxChecks = 1 << 20
	const herd = 5_000
	for i := range herd {
		d.admit(fmt.Sprint("user ", i), "pods")
	}
	perSecond := map[kind][]int{ofCredential: make([]int, 100), ofPermission: make([]int, 100)}
	for ; d.now.Before(start.Add(100 * time.Second)); d.now = d.now.Add(100 * time.Millisecond) {
		var due []*check
		turn := d.schedule.due(d.now)
		due = append(due, turn.reviews...)
		for _, c := range due {
			perSecond[c.kind][int(d.now.Sub(start)/time.Second)]++
			d.schedule.handleResult(c, reviewResult{verdict: auth.Allowed, at: d.now, who: c.who}, d.now)
		}
	}
	d.consistent()
	for k, sweep := range map[kind]int{ofCredential: 15, ofPermission: 25} {
		mean := herd / sweep
		if most := slices.Max(perSecond[k]); most > mean*5/4 {
			t.Errorf("%ss: %d in one second, %d would be even: %v", k, most, mean, perSecond[k])
		}
	}
}

// TestRotaStale shows that a denial does not count if a review that was sent later agreed; nor does
// anything from before a change.
func TestRotaStale(t *testing.T) {
	d := newDuty(t, func() float64 { return 0 })
	_, s := d.admit("alice", "pods")
	d.now = start.Add(15 * time.Second)
	d.found(d.turn()[0], auth.Allowed)
	d.now = start.Add(25 * time.Second)
	asked := d.turn()[0]
	at := d.now
	d.now = d.now.Add(time.Second)
	d.admit("alice", "pods") // which was just allowed
	d.schedule.handleResult(asked, reviewResult{verdict: auth.Denied, at: at, end: EndForbidden}, d.now)
	again := d.turn()
	if s.end != "" || len(again) != 1 || again[0] != asked {
		t.Fatalf("ended %q, %d checks", s.end, len(again))
	}
	d.schedule.recheck(func(who *auth.Identity, _ auth.Attributes) bool { return who.Name() == "alice" }, d.now)
	d.found(asked, auth.Allowed) // asked before the change
	confirmed := asked.confirmed
	var permission *check
	for _, c := range d.turn() {
		if c == asked {
			permission = c
		}
	}
	if permission == nil || !confirmed.Equal(d.now) && confirmed.After(d.now) {
		t.Fatal("it is not asked again after a change")
	}
	d.found(permission, auth.Denied)
	if d.turn(); s.end != EndForbidden {
		t.Errorf("ended %q", s.end)
	}
}

// TestRotaIdentityChanges shows that a credential that proves another user takes its streams along,
// and that the permission of that user is reviewed at once.
func TestRotaIdentityChanges(t *testing.T) {
	d := newDuty(t, func() float64 { return 0 })
	_, s := d.admit("alice", "pods")
	_, t2 := d.admit("alice", "nodes")
	d.now = start.Add(15 * time.Second)
	c := d.turn()[0]
	d.schedule.handleResult(c, reviewResult{verdict: auth.Allowed, at: d.now, who: named("alice", "fewer")}, d.now)
	asked := d.turn()
	if len(asked) != 2 || asked[0].kind != ofPermission || !asked[0].who.MemberOf("fewer") ||
		len(d.schedule.permissions) != 2 {
		t.Fatalf("%d checks, %d permissions", len(asked), len(d.schedule.permissions))
	}
	for _, c := range asked {
		v := auth.Allowed
		if c.what.Resource == "pods" {
			v = auth.Denied
		}
		d.found(c, v)
	}
	if d.turn(); s.end != EndForbidden || t2.end != "" {
		t.Errorf("pods ended %q, nodes %q", s.end, t2.end)
	}
}

// TestRotaIdentityChangesByRequests shows that a review for a request may find another user, too.
func TestRotaIdentityChangesByRequests(t *testing.T) {
	d := newDuty(t, func() float64 { return 0 })
	d.schedule.recall = func(c *check) (time.Time, *auth.Identity, bool) {
		return d.now.Add(-time.Second), named("alice", "fewer"), c.kind == ofCredential
	}
	_, s := d.admit("alice", "pods")
	d.now = start.Add(15 * time.Second)
	asked := d.turn()
	if len(asked) != 1 || asked[0].kind != ofPermission || !asked[0].who.MemberOf("fewer") {
		t.Fatalf("%d checks", len(asked))
	}
	d.found(asked[0], auth.Denied)
	if d.turn(); s.end != EndForbidden {
		t.Errorf("ended %q", s.end)
	}
}

// A certificate ends when it should although the wall clock was set back meanwhile, and is looked
// at then once.
func TestRotaCertificateEndsByTheClockThatRuns(t *testing.T) {
	d := newDuty(t, func() float64 { return 0 })
	d.now = time.Now()
	looks := 0
	d.schedule.recall = func(*check) (time.Time, *auth.Identity, bool) {
		if looks++; looks > 100 {
			panic("it is looked at again and again")
		}
		return time.Time{}, nil, false
	}
	s := &recorded{}
	alice := provenByCertificate(t, "alice", d.now.Add(10*time.Second))
	alice.At = d.now
	d.schedule.admit(&Lease{stream: s}, alice, auth.Attributes{Verb: "watch"}, d.now, d.now)
	d.now = authtest.SetBack(t, d.now.Add(10*time.Second), time.Hour)
	if d.turn(); s.end != EndCredentialExpired {
		t.Errorf("ended %q", s.end)
	}
}

// admitMany admits streams of a user in so many namespaces.
func (d *manualSchedule) admitMany(name string, n int) {
	for i := range n {
		d.schedule.admit(&Lease{stream: &recorded{}}, d.proven(name, name, d.now),
			auth.Attributes{Verb: "watch", Namespace: fmt.Sprint("ns-", i)}, d.now, d.now)
	}
}

// namesOf are the users of checks.
func namesOf(checks []*check) []string {
	var names []string
	for _, c := range checks {
		names = append(names, c.who.Name())
	}
	return names
}

// A user with thousands of due reviews that are never answered has half of them under way at most.
// The reviews of other users start in the turn in which they come due.
func TestRotaUserWithManyReviewsDelaysNoOther(t *testing.T) {
	d := newDuty(t, func() float64 { return 0 })
	d.schedule.maxChecks = 64
	d.admitMany("many", 4000)
	d.now = start.Add(20 * time.Second)
	d.admit("alice", "pods")
	d.now = start.Add(25 * time.Second)
	if n := len(d.turn()); n != 32 {
		t.Errorf("%d of 64 reviews are of one user", n)
	}
	for _, at := range []time.Duration{35, 45} { // alice's credential, then her permission
		d.now = start.Add(at * time.Second)
		asked := d.turn()
		if names := namesOf(asked); !slices.Equal(names, []string{"alice"}) {
			t.Fatalf("after %d s the reviews of %q start, want one of alice", at, names)
		}
		d.found(asked[0], auth.Allowed)
	}
}

// Users with due reviews take turns, and the reviews of each start in the order in which they came
// due.
func TestRotaUsersTakeTurns(t *testing.T) {
	d := newDuty(t, func() float64 { return 0 })
	d.schedule.maxChecks = 1
	var order []string
	for _, admitted := range []string{"alice 1", "alice 2", "alice 3", "bob 1", "carol 1", "carol 2", "carol 3"} {
		name, resource, _ := strings.Cut(admitted, " ")
		d.admit(name, resource)
		d.now = d.now.Add(time.Millisecond)
	}
	d.now = start.Add(26 * time.Second)
	for asked := d.turn(); len(asked) > 0; asked = d.turn() {
		if c := asked[0]; c.kind == ofPermission {
			order = append(order, c.who.Name()+" "+c.what.Resource)
		}
		d.found(asked[0], auth.Allowed)
	}
	want := []string{"alice 1", "bob 1", "carol 1", "alice 2", "carol 2", "alice 3", "carol 3"}
	if !slices.Equal(order, want) {
		t.Errorf("reviews started in the order %q, want %q", order, want)
	}
}

// TestScheduleAtRandom shows that the schedule stays consistent in any order of events, and that no
// stream runs without a review that agreed.
func TestScheduleAtRandom(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 7))
		d := newDuty(t, random.Float64)
		var permits []*Lease
		streams := map[*Lease]*recorded{}
		var asking []*check
		asked := map[*check]time.Time{}
		for range 1000 {
			d.now = d.now.Add(time.Duration(random.Int64N(int64(3 * time.Second))))
			switch random.IntN(6) {
			case 0, 1:
				s, p := &recorded{}, &Lease{}
				p.stream = s
				token, name := fmt.Sprint("token ", random.IntN(8)), fmt.Sprint("user ", random.IntN(5))
				old := func() time.Time { return d.now.Add(-time.Duration(random.Int64N(int64(auth.AnswerTTL)))) }
				what := auth.Attributes{Verb: "watch", Resource: fmt.Sprint(random.IntN(3))}
				d.schedule.admit(p, d.proven(token, name, old()), what, old(), d.now)
				permits, streams[p] = append(permits, p), s
			case 2:
				if len(permits) > 0 {
					i := random.IntN(len(permits))
					d.schedule.release(permits[i])
					delete(streams, permits[i])
					permits = slices.Delete(permits, i, i+1)
				}
			case 3:
				user := fmt.Sprint("user ", random.IntN(5))
				d.schedule.recheck(func(who *auth.Identity, _ auth.Attributes) bool { return who.Name() == user }, d.now)
			default:
				for len(asking) > 0 && random.IntN(3) > 0 {
					i := random.IntN(len(asking))
					c := asking[i]
					asking = slices.Delete(asking, i, i+1)
					f := reviewResult{verdict: []auth.Verdict{auth.Allowed, auth.Allowed, auth.Allowed, auth.Unreviewed,
						auth.Denied}[random.IntN(5)], at: asked[c], end: EndForbidden, who: c.who}
					if c.kind == ofCredential && random.IntN(4) == 0 {
						f.who = named(fmt.Sprint("user ", random.IntN(5)))
					}
					delete(asked, c)
					d.schedule.handleResult(c, f, d.now)
				}
			}
			for _, c := range d.turn() {
				if _, twice := asked[c]; twice {
					t.Fatal("one check is under way twice")
				}
				asking, asked[c] = append(asking, c), d.now
			}
			for p, s := range streams {
				if s.end != "" {
					continue
				}
				for _, c := range []*check{p.credential, p.permission} {
					if age := d.now.Sub(c.confirmed); !s.held && age >= c.sweep+grace {
						t.Fatalf("seed %d: a stream runs by a %s that was confirmed %v ago", seed, c.kind, age)
					}
				}
			}
		}
		for _, p := range permits {
			d.schedule.release(p)
		}
		d.turn()
		if n := len(d.schedule.deadlines); n != 0 {
			t.Fatalf("seed %d: %d checks are left without a watch", seed, n)
		}
	}
}

// What is known by other ways than a question may be no younger than what was known before. Then it
// is looked at again a moment later, until it is, and held in time if it never is.
func TestRotaLooksAgain(t *testing.T) {
	d := newDuty(t, func() float64 { return 0 })
	_, s := d.admit("alice", "pods")
	d.now = start.Add(15 * time.Second)
	looks := 0
	for ; !s.held; d.now = d.now.Add(minRetryInterval / 2) {
		for _, c := range d.turn() {
			if looks++; c.kind != ofCredential {
				t.Fatal("it is not the token's turn")
			}
			d.schedule.handleResult(c, reviewResult{verdict: auth.Allowed, at: start, who: c.who}, d.now)
			d.consistent()
		}
		if d.now.Sub(start) > 20*time.Second {
			t.Fatal("what is too old still counts")
		}
	}
	if most := int(grace / minRetryInterval); looks < most/2 || looks > most+1 {
		t.Errorf("looked at %d times", looks)
	}
}
