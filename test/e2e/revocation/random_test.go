package revocation

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

var (
	changing = flag.Duration("changing", 10*time.Second, "how long TestRandomRights changes rights")
	seed     = flag.Uint64("seed", 1, "what TestRandomRights makes its changes from")
)

const (
	people = 12
	places = 5
)

// pair is a user and a namespace, and the user's watch of it.
type pair struct {
	cluster *authcluster.Cluster
	person  authcluster.User
	place   string
	name    string // of the role and the binding

	mu      sync.Mutex
	allowed bool
	gone    time.Time // since when the right is gone
	watches bool
	ended   bool // the watch, since the right is gone
	seen    uint64
	events  int

	// Of all times without the right.
	ends  []time.Duration // from the loss of the right to the end of the watch, if it lasted that long
	lasts []time.Duration // to the last event that was delivered, if any was
	late  []string
}

// TestRandomRights gives and takes rights at random under watches. No watch delivers an event more
// than 30 s after its user has lost the right; and those that have it in the end see all there is.
func TestRandomRights(t *testing.T) {
	t.Parallel()
	users := map[controlplane.User][]string{}
	for i := range people {
		users[controlplane.User(fmt.Sprintf("u%d", i))] = nil
	}
	c := authcluster.Start(t, authcluster.Options{Users: users})
	var namespaces []string
	for i := range places {
		namespaces = append(namespaces, fmt.Sprintf("n%d", i))
	}
	s := newScribe(t, c, namespaces...)
	var pairs []*pair
	for user := range users {
		for _, namespace := range namespaces {
			p := &pair{cluster: c, person: c.User(user), place: namespace, name: "may-" + string(user)}
			if err := p.grant(t.Context()); err != nil {
				t.Fatal(err)
			}
			pairs = append(pairs, p)
		}
	}
	slices.SortFunc(pairs, func(a, b *pair) int {
		return slices.Compare([]string{a.name, a.place}, []string{b.name, b.place})
	})
	c.Settle(t)
	proxy := process.StartProxy(t, process.BuildProxy(t), append(c.ProxyFlags(), "--resources=configmaps")...)

	ctx, cancel := context.WithCancel(t.Context())
	var watching, writing sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	clients := map[string]*http.Client{}
	for i, p := range pairs {
		to := authcluster.Through(proxy, p.person)
		if clients[p.name] == nil {
			clients[p.name] = clientFor(to, i%2 == 0)
		}
		client := clients[p.name] // not in the goroutine: the map is still being filled
		watching.Go(func() { p.watch(ctx, t, client, proxy) })
	}
	for _, p := range pairs {
		p.await(t, "to watch", func() bool { return p.watches })
	}
	write, stop := context.WithCancel(ctx)
	writing.Go(func() { s.run(write, t, 100*time.Millisecond) })

	changes := change(ctx, t, pairs, rand.New(rand.NewPCG(*seed, 0)))
	time.Sleep(most + 3*time.Second) // an event that is delivered too late has been by now
	stop()
	writing.Wait()
	report(t, pairs, changes)
	for _, p := range pairs {
		if p.allowed {
			p.await(t, "to see the last of what was written", func() bool { return p.seen >= s.lastIn(p.place) })
		} else if !p.ended {
			t.Errorf("%s in %s still watches, and may not", p.name, p.place)
		}
	}
}

// change changes rights for a while.
func change(ctx context.Context, t *testing.T, pairs []*pair, random *rand.Rand) int {
	t.Helper()
	changes := 0
	for end := time.Now().Add(*changing); time.Now().Before(end); changes++ {
		p := pairs[random.IntN(len(pairs))]
		var err error
		if p.allowed {
			err = p.revoke(ctx, random.IntN(4))
		} else if time.Since(p.gone) > time.Duration(random.IntN(60))*time.Second {
			err = p.grant(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
	}
	return changes
}

// grant lets the user read what is in the place. Only change calls it, and revoke.
func (p *pair) grant(ctx context.Context) error {
	p.mu.Lock()
	p.allowed, p.ended = true, false
	p.mu.Unlock()
	rbac, meta := p.cluster.Admin.RbacV1(), metav1.ObjectMeta{Name: p.name}
	none, options := metav1.DeleteOptions{}, metav1.CreateOptions{}
	_ = rbac.RoleBindings(p.place).Delete(ctx, p.name, none) // neither need be there
	_ = rbac.Roles(p.place).Delete(ctx, p.name, none)
	_, err := rbac.Roles(p.place).Create(
		ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{authcluster.Rule("get,list,watch", "", "configmaps")}},
		options)
	if err != nil {
		return err
	}
	_, err = rbac.RoleBindings(p.place).Create(ctx, p.binding(p.person.Subject), options)
	return err
}

func (p *pair) binding(subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: p.name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: p.name},
	}
}

// revoke takes the right away, in one of four ways.
func (p *pair) revoke(ctx context.Context, way int) error {
	rbac, none := p.cluster.Admin.RbacV1(), metav1.DeleteOptions{}
	var err error
	switch way {
	case 0:
		err = rbac.RoleBindings(p.place).Delete(ctx, p.name, none)
	case 1:
		err = rbac.Roles(p.place).Delete(ctx, p.name, none)
	case 2:
		_, err = rbac.RoleBindings(p.place).Update(ctx, p.binding(), metav1.UpdateOptions{})
	case 3:
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: p.name},
			Rules: []rbacv1.PolicyRule{authcluster.Rule("get,list", "", "configmaps")}}
		_, err = rbac.Roles(p.place).Update(ctx, role, metav1.UpdateOptions{})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allowed, p.gone, p.ended = false, time.Now(), !p.watches
	return err
}

// watch watches whenever it is permitted, and resumes from where it was.
func (p *pair) watch(ctx context.Context, t *testing.T, client *http.Client, proxy *process.Proxy) {
	to, rv := authcluster.Through(proxy, p.person), "0"
	for ctx.Err() == nil {
		w, err := open(ctx, client, to, p.person, "/api/v1/namespaces/"+p.place+"/configmaps", rv)
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("%s in %s: %v", p.name, p.place, err)
			}
			return
		}
		p.began(w.status == http.StatusOK)
		for e := range w.events {
			if e.Type == "ERROR" {
				t.Errorf("%s in %s cannot go on from %s: %s", p.name, p.place, rv, e.Line)
				return
			}
			p.sent(e)
			rv = strconv.FormatUint(e.Version, 10)
		}
		switch {
		case ctx.Err() != nil:
			return
		case w.err != nil, w.status != http.StatusOK && w.status != http.StatusForbidden:
			t.Errorf("%s in %s: %d %s, %v", p.name, p.place, w.status, said(w.body), w.err)
		}
		p.over()
		time.Sleep(250 * time.Millisecond)
	}
}

func (p *pair) began(watches bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches = watches
}

// sent notes an event that has arrived.
func (p *pair) sent(e exchange.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = e.Version
	if e.Type == "BOOKMARK" {
		return
	}
	p.events++
	if p.allowed {
		return
	}
	since := time.Since(p.gone)
	p.lasts = append(p.lasts, since)
	if since > most {
		p.late = append(p.late, fmt.Sprintf("%s after %v", exchange.Clip(e.Line), since))
	}
}

// over notes the end of a watch.
func (p *pair) over() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watches && !p.allowed && !p.ended {
		p.ended = true
		p.ends = append(p.ends, time.Since(p.gone))
	}
	p.watches = false
}

func (p *pair) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	process.Awaiting(t, fmt.Sprintf("%s in %s %s", p.name, p.place, what), func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !done() {
			return errors.New("not yet")
		}
		return nil
	})
}

// report prints how long it took, and fails for what came too late.
func report(t *testing.T, pairs []*pair, changes int) {
	t.Helper()
	var ends, lasts []time.Duration
	events := 0
	for _, p := range pairs {
		p.mu.Lock()
		ends, events = append(ends, p.ends...), events+p.events
		lasts = append(lasts, p.lasts...)
		for _, late := range p.late {
			t.Errorf("%s in %s is sent %s", p.name, p.place, late)
		}
		p.mu.Unlock()
	}
	t.Logf("seed %d: %d watches, %d changes, %d events", *seed, len(pairs), changes, events)
	t.Logf("from the loss of a right to the end of its watch: %s", quantiles(ends))
	t.Logf("from the loss of a right to events that came all the same: %s", quantiles(lasts))
	if len(ends) < len(pairs)/10 || len(lasts) == 0 || events < 100*len(pairs) {
		t.Error("too little happened to show anything")
	}
}

// quantiles prints p50, p99 and the largest.
func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "never"
	}
	slices.Sort(all)
	at := func(q float64) float64 { return all[min(len(all)-1, int(q*float64(len(all))))].Seconds() }
	return fmt.Sprintf("p50 %.1f s, p99 %.1f s, max %.1f s (%d times)", at(0.5), at(0.99), at(1), len(all))
}
