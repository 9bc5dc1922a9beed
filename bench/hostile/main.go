// Command hostile shows that one user's costly selectors delay no other user. A user with read
// access to namespace a opens watches there with selectors of many terms, distinct or equal.
// Another user's watch of namespace b gets its events as soon as before, and the weight of the
// selectors is bounded.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/bench/rig"
)

var (
	window  = flag.Duration("window", 20*time.Second, "how long delays are measured each time")
	compare = flag.Bool("compare", true, "measure kube-apiserver with the first attack, too")
	only    = flag.String("only", "", "play one attack only, by its name")
)

// attackKind is watches that one user opens in namespace a. Both namespaces get Rate writes a
// second.
//
// Plain compares with as many watches of one term instead of with none. That is right where every
// write goes to thousands of watches, so that deliveries alone fill the processors, which servers
// and clients share here: what counts is that the selectors add nothing to that.
type attackKind struct {
	Name           string
	Watches, Terms int
	Equal, Plain   bool
	Rate           float64
}

var attacks = []attackKind{
	{Name: "40 × 60,000 terms", Watches: 40, Terms: 60_000, Rate: 40},
	{Name: "40 equal × 60,000 terms", Watches: 40, Terms: 60_000, Equal: true, Rate: 40},
	{Name: "400 × 3,000 terms", Watches: 400, Terms: 3000, Rate: 40},
	{Name: "4,000 × 257 terms", Watches: 4000, Terms: 257, Rate: 40},
	{Name: "4,000 × 256 terms", Watches: 4000, Terms: 256, Rate: 40},
	{Name: "4,000 × 17 terms", Watches: 4000, Terms: 17, Plain: true, Rate: 20},
}

// plain is as many watches, with a selector of one term each.
func (a attackKind) plain() attackKind {
	return attackKind{Name: a.Name + ": watches of one term", Watches: a.Watches, Terms: 1, Rate: a.Rate}
}

// mostRatio is how much later than without the attack, or than beside plain watches, the other
// user's events may be.
const mostRatio = 2.0

func main() {
	if len(os.Args) == 3 && os.Args[1] == besieger {
		if err := besiege(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "hostile:", err)
			os.Exit(1)
		}
		return
	}
	rig.Main("hostile", run)
}

// show is one run.
type show struct {
	report         *rig.Report
	pair           *rig.Pair
	mallory, alice string // tokens
}

func run(ctx context.Context, r *rig.Report) error {
	pair, err := rig.StartAPIServers(ctx)
	if err != nil {
		return err
	}
	defer pair.Stop()
	s := &show{report: r, pair: pair}
	if err := s.people(ctx); err != nil {
		return err
	}
	kubeconfig, err := pair.ProxyKubeconfig(ctx)
	if err != nil {
		return err
	}
	if err := pair.StartProxyAs(ctx, kubeconfig, "configmaps"); err != nil {
		return err
	}
	if err := pair.Settle(ctx); err != nil {
		return err
	}
	for _, a := range attacks {
		if *only != "" && *only != a.Name {
			continue
		}
		if err := s.play(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	if *compare {
		for _, a := range attacks {
			if *only == a.Name || *only == "" && (a.Plain || a.Name == attacks[0].Name) {
				if err := s.compare(ctx, a); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// people makes two users, each with a namespace that the other may not read.
func (s *show) people(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.pair.Config())
	if err != nil {
		return err
	}
	for namespace, person := range map[string]struct {
		name  string
		token *string
	}{"a": {"mallory", &s.mallory}, "b": {"alice", &s.alice}} {
		if _, err := client.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		if *person.token, err = rig.NewServiceAccount(ctx, client, namespace, person.name); err != nil {
			return err
		}
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
		}}
		if _, err := client.RbacV1().Roles(namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
			return err
		}
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "reader"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: person.name}},
		}
		if _, err := client.RbacV1().RoleBindings(namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			return err
		}
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "pulse",
			Labels: map[string]string{"app": "pulse", "tier": "x"}}}
		if _, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// measure is how late events of namespace b reach their watch at a server while both namespaces are
// written to.
func (s *show) measure(ctx context.Context, server rig.Server, rate float64) (*sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rv, err := (rig.Server{Name: server.Name, URL: server.URL, Token: s.alice}).Newest(ctx,
		"/api/v1/namespaces/b/configmaps")
	if err != nil {
		return nil, err
	}
	client := rig.NewHTTP2Client(s.alice)
	defer client.CloseIdleConnections()
	watch, err := rig.OpenWatch(ctx, client, server.URL+"/api/v1/namespaces/b/configmaps",
		map[string][]string{"resourceVersion": {fmt.Sprint(rv)}})
	if err != nil {
		return nil, err
	}
	defer watch.Close()
	writing := make(chan error, 2)
	var written int
	for namespace, perSecond := range map[string]float64{"a": rate, "b": rate} {
		writer := s.pair.NewWriter([]string{"/api/v1/namespaces/" + namespace + "/configmaps/pulse"})
		go func() {
			n, err := writer.Run(ctx, perSecond, 1, *window)
			if namespace == "b" {
				written = n
			}
			writing <- err
		}()
	}
	late := make(chan []time.Duration, 1)
	go func() { late <- read(watch) }()
	for range 2 {
		if err := <-writing; err != nil {
			return nil, err
		}
	}
	_ = rig.Sleep(ctx, 6*time.Second) // what has not arrived by then is lost to the other user
	watch.Close()
	return newSample(<-late, written), nil
}

// alone measures the proxy and kube-apiserver with what an attack is compared with: no other
// watches, or plain ones at the proxy.
func (s *show) alone(ctx context.Context, a attackKind) (proxy, beside *sample, err error) {
	if a.Plain {
		g, err := s.besiege(s.pair.Spillway, a.plain())
		if err != nil {
			return nil, nil, err
		}
		defer g.end()
		if err := s.pair.Settle(ctx); err != nil {
			return nil, nil, err
		}
	}
	if proxy, err = s.measure(ctx, s.pair.Spillway, a.Rate); err != nil {
		return nil, nil, err
	}
	beside, err = s.measure(ctx, s.pair.APIServer, a.Rate)
	return proxy, beside, err
}

// play measures the proxy without an attack and with it.
func (s *show) play(ctx context.Context, a attackKind) error {
	rig.Say("%s", a.Name)
	idle, err := s.pair.Proxy.Usage()
	if err != nil {
		return err
	}
	before, besideBefore, err := s.alone(ctx, a)
	if err != nil {
		return err
	}
	g, err := s.besiege(s.pair.Spillway, a)
	if err != nil {
		return err
	}
	defer g.end()
	if err := s.pair.Settle(ctx); err != nil {
		return err
	}
	lag := s.follow(ctx)
	during, err := s.measure(ctx, s.pair.Spillway, a.Rate)
	most := lag()
	if err != nil {
		return err
	}
	beside, err := s.measure(ctx, s.pair.APIServer, a.Rate) // with the same load on this machine
	if err != nil {
		return err
	}
	const inUse, bytes, lanes = "spillway_flowcontrol_in_use", "spillway_selector_bytes",
		"spillway_dispatch_lanes"
	m, err := s.pair.Proxy.Metrics().Read(ctx, inUse, bytes, lanes)
	if err != nil {
		return err
	}
	busy, err := s.pair.Proxy.Usage()
	if err != nil {
		return err
	}
	ratio := float64(during.at(99)) / float64(before.at(99))
	s.report.Check(ratio <= mostRatio && during.complete(), a.Name,
		"p50 %s → %s, p99 %s → %s (%.2f×), %d of %d events", before.at(50), during.at(50), before.at(99), during.at(99),
		ratio, len(during.delays), during.written)
	s.report.Note(a.Name+": kube-apiserver",
		"p50 %s → %s, p99 %s → %s, before and while the proxy holds the hostile watches; it holds none itself",
		besideBefore.at(50), beside.at(50), besideBefore.at(99), beside.at(99))
	s.report.Check(most <= lagMost, a.Name+": dispatch lag", "at most %.0f events", most)
	s.report.Note(a.Name+": watches", "%d open, %d refused with 429, %d failed", g.Open, g.Refused, g.Failed)
	s.report.Note(a.Name+": weight", "%.0f terms, %.1f MB of selectors, %.0f lanes; RSS %+.0f MB", m.Sum(inUse, "limit",
		"selector_terms"),
		m.Sum(bytes)/1e6, m.Sum(lanes), float64(busy.RSS-idle.RSS)/1e6)
	return nil
}

// lagMost is a backlog that a dispatcher which keeps up has at times: what comes while another
// goroutine has the processor.
const lagMost = 40

// follow samples the dispatch lag until stop is called, which returns the greatest.
func (s *show) follow(ctx context.Context) (stop func() float64) {
	ctx, cancel := context.WithCancel(ctx)
	seen := make(chan float64)
	go func() {
		most := 0.0
		for rig.Sleep(ctx, 200*time.Millisecond) == nil {
			if m, err := s.pair.Proxy.Metrics().Read(ctx, "spillway_dispatch_lag_events"); err == nil {
				most = max(most, m.Sum("spillway_dispatch_lag_events"))
			}
		}
		seen <- most
	}()
	return func() float64 {
		cancel()
		return <-seen
	}
}

// compare measures kube-apiserver with and without an attack, and beside it nothing of the proxy.
func (s *show) compare(ctx context.Context, a attackKind) error {
	rig.Say("kube-apiserver: %s", a.Name)
	s.pair.StopProxy()
	before, err := s.measure(ctx, s.pair.APIServer, a.Rate)
	if err != nil {
		return err
	}
	g, err := s.besiege(s.pair.APIServer, a)
	if err != nil {
		return err
	}
	defer g.end()
	during, err := s.measure(ctx, s.pair.APIServer, a.Rate)
	if err != nil {
		return err
	}
	s.report.Note("kube-apiserver, "+a.Name, "p50 %s → %s, p99 %s → %s, %d of %d events; %d open, %d failed",
		before.at(50), during.at(50), before.at(99), during.at(99),
		len(during.delays), during.written, g.Open, g.Failed)
	return nil
}
