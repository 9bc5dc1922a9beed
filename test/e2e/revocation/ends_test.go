package revocation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/process"
)

const red = "/api/v1/namespaces/red/configmaps"

var reads = authcluster.In("red", authcluster.Rule("get,list,watch", "", "configmaps"))

// endingWatch is a watch whose right is going to end.
type endingWatch struct {
	name   string
	person authcluster.User
	http2  bool
	ends   string // the reason in the metrics; empty: it goes on
	from   time.Time

	mu     sync.Mutex
	last   time.Time // of the last event
	events int
	ended  time.Time
	err    error
}

// TestWatchesEndWithTheirRights lets rights end while watches run by them: each ends cleanly, by
// its reason, in time, and delivers nothing after; the next request is answered as upstream itself
// would answer it. Other watches do not notice.
func TestWatchesEndWithTheirRights(t *testing.T) {
	t.Parallel()
	c := authcluster.Start(t, authcluster.Options{})
	s := newScribe(t, c, "red")
	deleted, unbound, roleless, stays := c.ServiceAccount(t, "red", "deleted", 0),
		c.ServiceAccount(t, "red", "unbound", 0),
		c.ServiceAccount(t, "red", "roleless", 0), c.ServiceAccount(t, "red", "stays", 0)
	expiring := c.ServiceAccount(t, "red", "expiring", 0)
	certified := c.Certified(t, "certified")
	binding, role := c.Grant(t, unbound, reads)[0], c.Grant(t, roleless, reads)[0]
	for _, p := range []authcluster.User{deleted, stays, expiring, certified} {
		c.Grant(t, p, reads)
	}
	c.Settle(t)
	proxy := process.StartProxy(t, process.BuildProxy(t), append(c.ProxyFlags(), "--resources=configmaps")...)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { s.run(ctx, t, 100*time.Millisecond) })

	end := time.Now().Add(15 * time.Second)
	pair, err := c.Clients.IssueClientUntil(end, "certified")
	if err != nil {
		t.Fatal(err)
	}
	certified = authcluster.WithCertificate(t, "certified", pair)
	token := strings.TrimPrefix(expiring.Header.Get("Authorization"), "Bearer ")
	expiring.Header.Set("Authorization", "Bearer "+c.Expire(t, token, end.Add(-authcluster.Leeway)))
	mortals := []*endingWatch{
		{name: "service account deleted", person: deleted, ends: "unauthenticated"},
		{name: "service account deleted, HTTP/2", person: deleted, ends: "unauthenticated", http2: true},
		{name: "binding deleted", person: unbound, ends: "forbidden"},
		{name: "binding deleted, HTTP/2", person: unbound, ends: "forbidden", http2: true},
		{name: "role deleted", person: roleless, ends: "forbidden"},
		{name: "token expired", person: expiring, ends: "credential_expired", from: end},
		{name: "certificate expired", person: certified, ends: "credential_expired", from: end},
		{name: "nothing", person: stays},
	}
	for _, m := range mortals {
		m.start(ctx, t, proxy, &running)
	}
	for _, m := range mortals {
		m.awaitEvents(t)
	}
	options := metav1.DeleteOptions{}
	if err := errors.Join(
		c.Admin.CoreV1().ServiceAccounts("red").Delete(ctx, "deleted", options),
		c.Admin.RbacV1().RoleBindings("red").Delete(ctx, binding, options),
		c.Admin.RbacV1().Roles("red").Delete(ctx, role, options),
	); err != nil {
		t.Fatal(err)
	}
	gone := time.Now()
	wanted := map[string]int{}
	for _, m := range mortals {
		if m.from.IsZero() {
			m.from = gone
		}
		if m.ends != "" {
			wanted[m.ends]++
			m.awaitEnd(t)
			m.awaitRefusal(t, proxy)
		}
	}
	mortals[len(mortals)-1].goesOn(t)
	for reason, n := range wanted {
		if got := process.Metric(t, proxy.Metrics, fmt.Sprintf(`spillway_reauthorization_terminations_total{reason=%q`,
			reason)); got != n {
			t.Errorf("%d watches were ended for %s, want %d", got, reason, n)
		}
	}
}

// start opens the watch and follows it.
func (m *endingWatch) start(ctx context.Context, t *testing.T, proxy *process.Proxy, running *sync.WaitGroup) {
	t.Helper()
	to := authcluster.Through(proxy, m.person)
	w, err := open(ctx, clientFor(to, m.http2), to, m.person, red, "0")
	if err != nil {
		t.Fatalf("%s: %v", m.name, err)
	}
	if w.status != http.StatusOK {
		for range w.events { // until the body has been read
		}
		t.Fatalf("%s: cannot watch: %d %s", m.name, w.status, said(w.body))
	}
	running.Go(func() {
		for e := range w.events {
			m.mu.Lock()
			if e.Type != "BOOKMARK" {
				m.last, m.events = time.Now(), m.events+1
			}
			m.mu.Unlock()
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.ended, m.err = time.Now(), w.err
	})
}

// fewest is how many events a watch must have been sent before its end shows anything: the state,
// and a change.
const fewest = 2

// awaitEvents waits until the watch has been sent events.
func (m *endingWatch) awaitEvents(t *testing.T) {
	t.Helper()
	process.Awaiting(t, "events for "+m.name, func(context.Context) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.events < fewest {
			return fmt.Errorf("%d events, ended: %t (%w)", m.events, !m.ended.IsZero(), m.err)
		}
		return nil
	})
}

// awaitEnd waits for the end and looks at when and how it came.
func (m *endingWatch) awaitEnd(t *testing.T) {
	t.Helper()
	process.Awaiting(t, "the end of a watch: "+m.name, func(context.Context) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.ended.IsZero() {
			return errors.New("it goes on")
		}
		return nil
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	took, sent := m.ended.Sub(m.from), m.last.Sub(m.from)
	t.Logf("%s: %d events, the last after %.1f s, the end after %.1f s", m.name, m.events, sent.Seconds(), took.Seconds())
	if took > most || m.err != nil || m.events < fewest {
		t.Errorf("%s: ended after %v (%v), with %d events", m.name, took, m.err, m.events)
	}
}

// awaitRefusal sends the request again, from the beginning, until it is refused.
func (m *endingWatch) awaitRefusal(t *testing.T, proxy *process.Proxy) {
	t.Helper()
	want := http.StatusUnauthorized
	if m.ends == "forbidden" {
		want = http.StatusForbidden
	}
	to := authcluster.Through(proxy, m.person)
	if m.ends == "credential_expired" && len(m.person.Certificates) == 0 {
		time.Sleep(time.Until(m.from.Add(11 * time.Second))) // for so long upstream itself remembers that it was good
	}
	w, err := open(t.Context(), clientFor(to, m.http2), to, m.person, red, "0")
	if err != nil {
		t.Errorf("%s: asking again: %v", m.name, err)
		return
	}
	for e := range w.events {
		t.Errorf("%s: after the end the client receives %s", m.name, e.Line)
	}
	if w.status != want {
		t.Errorf("%s: the next request is answered %d %s, want %d", m.name, w.status, said(w.body), want)
	}
}

// goesOn checks that nothing has become of the watch.
func (m *endingWatch) goesOn(t *testing.T) {
	t.Helper()
	process.Awaiting(t, "an event for the user that keeps the right", func(context.Context) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case !m.ended.IsZero():
			t.Fatalf("the user that keeps the right watches no more: %v", m.err)
		case time.Since(m.last) > 5*time.Second:
			return errors.New("none for long")
		}
		return nil
	})
}
