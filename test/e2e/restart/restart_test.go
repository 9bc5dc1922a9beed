package restart

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

var informerCount = flag.Int("informers", 50, "informers that watch through the proxy")

// away is how long no server answers the informers: long enough that much happens, short enough
// that upstream remembers.
const away = 2 * time.Second

// scene is a real control plane where things happen, and a proxy.
type scene struct {
	t      *testing.T
	cp     *controlplane.ControlPlane
	direct kubernetes.Interface
	binary string
	churn  *churn
}

// newScene starts them. What happens directly upstream trusts more authorities, too.
func newScene(t *testing.T, more ...*controlplane.Authority) *scene {
	t.Helper()
	cp := startControlPlane(t, controlplane.Options{})
	return newSceneOf(t, cp, cp.Config(controlplane.Admin), more...)
}

func startControlPlane(t *testing.T, options controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	options.Log = t.Output()
	cp, err := controlplane.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	return cp
}

// newSceneOf is newScene of a control plane that is written to by a way to its API server.
func newSceneOf(t *testing.T, cp *controlplane.ControlPlane, way *rest.Config, more ...*controlplane.Authority) *scene {
	t.Helper()
	config := rest.CopyConfig(way)
	config.QPS, config.Timeout = -1, 5*time.Second
	for _, authority := range more {
		config.CAData = slices.Concat(config.CAData, authority.PEM())
	}
	direct, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &scene{t: t, cp: cp, direct: direct, binary: process.BuildProxy(t), churn: startChurn(t, direct)}
}

// proxy starts one that listens at an address; "" chooses one.
func (s *scene) proxy(address string) *process.Proxy {
	s.t.Helper()
	args := []string{"--kubeconfig=" + s.cp.Kubeconfig(controlplane.Admin), "--listen-identity=self",
		"--resources=configmaps", "--log-level=info"}
	if address != "" {
		args = append(args, "--listen="+strings.TrimPrefix(address, "http://"))
	}
	return process.StartProxy(s.t, s.binary, args...)
}

// disturb takes something from the informers and gives it back, and reports how they got over it:
// none may have listed again, and all must hold what upstream has in the end.
func (s *scene) disturb(c *informerGroup, what string, disturb func()) {
	s.t.Helper()
	// a watch that shows nothing and is over within a second is an error to client-go
	c.reach(int(s.churn.pulse.Load())+5, time.Now())
	states, resumes, refused, writes := c.sent.states.Load(), c.sent.resumes.Load(), c.sent.refused.Load(),
		s.churn.writes.Load()
	began := time.Now()
	disturb()
	back := time.Now()
	writes = s.churn.writes.Load() - writes
	median, last := c.reach(int(s.churn.pulse.Load())+1, began)
	time.Sleep(time.Second) // some more happens to those connected again
	s.churn.end()
	c.check(s.direct)
	states, resumes, refused = c.sent.states.Load()-states, c.sent.resumes.Load()-resumes, c.sent.refused.Load()-refused
	s.t.Logf("%s: %d informers, %d writes while it lasted (%v): all are up to date after %v, half of them after %v; %d "+
		"relists, %d resumes, %d told to wait",
		what, len(c.all), writes, back.Sub(began).Round(time.Millisecond), last.Round(time.Millisecond),
		median.Round(time.Millisecond), states, resumes, refused)
	if states != 0 {
		s.t.Errorf("%d relists", states)
	}
	if writes == 0 {
		s.t.Error("nothing happened meanwhile: this tests nothing")
	}
}

// backfilled checks that informers received past events through a proxy that does not have them.
func (s *scene) backfilled(p *process.Proxy, least int) {
	s.t.Helper()
	streams, watches := process.Metric(s.t, p.Metrics, "spillway_backfilled_watches_total"),
		process.Metric(s.t, p.Metrics, "spillway_backfill_upstream_watches_total")
	s.t.Logf("%d streams were backfilled by %d upstream watches", streams, watches)
	if streams < least {
		s.t.Errorf("only %d streams were backfilled: this tests too little", streams)
	}
	if open := process.Metric(s.t, p.Metrics, "spillway_backfill_active_upstream_watches"); open != 0 {
		s.t.Errorf("%d watches of the past are open", open)
	}
}

// The proxy crashes and is started again.
func TestProxyKilled(t *testing.T) {
	s := newScene(t)
	p := s.proxy("")
	c := newInformerGroup(t, &rest.Config{Host: p.Plain}, *informerCount)
	var again *process.Proxy
	s.disturb(c, "the proxy is killed", func() {
		p.Kill()
		time.Sleep(away)
		again = s.proxy(p.Plain)
	})
	s.backfilled(again, *informerCount/2)
}

// Another replica takes over, which none of the informers has seen before.
func TestReplicaTakesOver(t *testing.T) {
	s := newScene(t)
	f := process.NewForwarder(t, s.proxy("").Plain)
	c := newInformerGroup(t, &rest.Config{Host: "http://" + f.Address}, *informerCount)
	var other *process.Proxy
	s.disturb(c, "another replica takes over", func() {
		f.Down()
		time.Sleep(away)
		other = s.proxy("")
		f.Up(other.Plain)
	})
	s.backfilled(other, *informerCount/2)
}

// kube-apiserver is restarted behind the proxy: its history is lost, that of the proxy is not.
func TestAPIServerRestarted(t *testing.T) {
	s := newScene(t)
	p := s.proxy("")
	c := newInformerGroup(t, &rest.Config{Host: p.Plain}, *informerCount)
	s.disturb(c, "kube-apiserver is restarted", func() {
		if err := s.cp.RestartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(away)
	})
}
