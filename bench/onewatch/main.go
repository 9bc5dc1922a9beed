// Command onewatch shows that any number of watchers and listers of one resource cost the API
// server exactly one watch, and that each of them receives every event once and in order. The truth
// is taken from the answers to the writes, which go straight to the API server.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"spillway/bench/rig"
	"spillway/test/framework/controlplane"
)

var (
	watcherCount = flag.Int("watchers", 500, "watchers")
	listerCount  = flag.Int("listers", 50, "listers")
	writeCount   = flag.Int("writes", 2000, "writes")
	writeRate    = flag.Float64("rate", 150, "writes per second, at most")
	overTLS      = flag.Bool("tls", false, "clients use the TLS listener")
)

// resource is one that kube-apiserver does not watch itself, and whose deletions are answered with
// their version.
const resource = "podtemplates"

var namespaces = []string{"red", "green", "blue"}

// firstState is what was written before the first watch.
var firstState acknowledgedWrites

func main() { rig.Main("onewatch", run) }

func run(ctx context.Context, r *rig.Report) error {
	cp, err := rig.StartControlPlane(ctx)
	if err != nil {
		return err
	}
	defer cp.Stop()
	s := &show{cp: cp, report: r, truth: &acknowledgedWrites{}}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	defer s.proxy.Kill()
	return s.play(ctx)
}

// show is one run.
type show struct {
	cp      *controlplane.ControlPlane
	direct  kubernetes.Interface // straight at the API server
	proxy   *rig.Proxy
	report  *rig.Report
	truth   *acknowledgedWrites
	writers []*writer
	sampler *sampler
	client  *http.Client
	base    string
	before  float64 // watches of the resource before the proxy started

	watchers []*watcher
	listers  []*lister
}

// prepare writes a first state and starts the proxy.
func (s *show) prepare(ctx context.Context) error {
	clients, err := kubernetes.NewForConfig(s.cp.Config(controlplane.Admin))
	if err != nil {
		return err
	}
	s.direct = clients
	for _, name := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := clients.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range 8 {
		s.writers = append(s.writers,
			&writer{id: i, client: clients, truth: s.truth, random: rand.New(rand.NewPCG(1, uint64(i)))})
	}
	if err := writeAll(ctx, s.writers, 120, 1000); err != nil {
		return err
	}
	s.truth.sort()
	firstState.changes = append(firstState.changes, s.truth.changes...)

	s.sampler = &sampler{}
	if s.sampler.apiserver, err = rig.APIServerMetrics(s.cp); err != nil {
		return err
	}
	if s.before, err = s.sampler.watches(ctx); err != nil {
		return err
	}
	args := []string{"--resources=" + resource}
	if *overTLS {
		args = append(args, "--listen-tls=127.0.0.1:0", "--insecure-allow-all")
	}
	if s.proxy, err = rig.StartProxy(ctx, s.cp.Kubeconfig(controlplane.Admin), args...); err != nil {
		return err
	}
	s.sampler.proxy = s.proxy.Metrics()
	s.client, s.base = rig.NewHTTPClient(), s.proxy.URL
	if *overTLS {
		s.client, s.base = rig.NewTLSClient(s.cp.Config(controlplane.Admin).BearerToken), s.proxy.TLSURL
	}
	return nil
}

// play starts all clients, writes, and compares.
func (s *show) play(ctx context.Context) error {
	playing, end := context.WithCancel(ctx)
	defer end()
	var players sync.WaitGroup
	defer players.Wait()
	defer end()
	players.Go(func() {
		s.report.CheckError(noise(playing, s.direct), "another resource changes all the time", "every %s", noiseEvery)
	})
	time.Sleep(10 * noiseEvery)
	s.startWatchers(playing, &players)
	if err := s.awaitStart(ctx); err != nil {
		return err
	}
	proofsAtStart, err := s.sampler.proven(ctx)
	if err != nil {
		return err
	}
	s.startListers(playing, &players)
	stopSampling := s.sample(playing)
	before, err := s.measure(ctx)
	if err != nil {
		return err
	}

	rig.Say("%d watchers and %d listers are on; %d writes begin", len(s.watchers), len(s.listers), *writeCount)
	began := time.Now()
	if err := writeAll(ctx, s.writers, *writeCount, *writeRate); err != nil {
		return err
	}
	took := time.Since(began)
	s.truth.sort()
	rig.Say("written in %s; waiting for the watchers to have everything", took.Round(time.Millisecond))
	s.awaitEvents(ctx)
	caughtUp := time.Since(began) - took
	after, err := s.measure(ctx)
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // for events that no client should receive
	stopSampling()
	proofsAtEnd, err := s.sampler.proven(ctx)
	if err != nil {
		return err
	}
	end()
	players.Wait()

	s.report.Note("writes", "%d in %s, straight at the API server", *writeCount, took.Round(time.Millisecond))
	s.report.Note("last watcher complete", "%s after the last write", caughtUp.Round(time.Millisecond))
	s.checkWatches(proofsAtStart, proofsAtEnd)
	s.checkWatchers()
	s.checkListers()
	s.noteCosts(before, after, took+caughtUp)
	return nil
}

// startWatchers starts the watchers: three in five of one namespace, one in five of all, one in
// five by label.
func (s *show) startWatchers(ctx context.Context, players *sync.WaitGroup) {
	for i := range *watcherCount {
		w := &watcher{client: s.client, base: s.base, scope: scope{selector: labels.Everything()}}
		w.start = []string{initialEvents, fromList, fromState}[i/5%3]
		switch i % 5 {
		case 3:
		case 4:
			w.scope.selector = []labels.Selector{
				labels.SelectorFromSet(labels.Set{"tier": "front"}), labels.SelectorFromSet(labels.Set{"tier": "back"}),
			}[i/5%2]
		default:
			w.scope.namespace = namespaces[i%5]
		}
		if i%10 == 7 { // a few reconnect and resume; watch-lists of 6 s at most would pass through
			w.timeout = 8 * time.Second
		}
		s.watchers = append(s.watchers, w)
		players.Go(func() { w.run(ctx) })
	}
}

func (s *show) startListers(ctx context.Context, players *sync.WaitGroup) {
	for i := range *listerCount {
		l := &lister{client: s.client, collection: s.base + "/api/v1/" + resource,
			scope: scope{selector: labels.Everything()}, pause: time.Second}
		if i%2 == 1 {
			l.scope.namespace = namespaces[i%len(namespaces)]
			l.collection = s.base + "/api/v1/namespaces/" + l.scope.namespace + "/" + resource
		}
		s.listers = append(s.listers, l)
		players.Go(func() { l.run(ctx) })
	}
}

// awaitStart waits until every watcher has its initial state and every proof watch has ended.
func (s *show) awaitStart(ctx context.Context) error {
	started := func() int {
		n := 0
		for _, w := range s.watchers {
			if w.started.Load() {
				n++
			}
		}
		return n
	}
	if !rig.Eventually(ctx, 2*time.Minute, 100*time.Millisecond, func() bool { return started() == len(s.watchers) }) {
		return fmt.Errorf("only %d of %d watchers have their initial state", started(), len(s.watchers))
	}
	return s.sampler.settled(ctx)
}

// awaitEvents waits until every watcher has as many events as it should, or a while.
func (s *show) awaitEvents(ctx context.Context) {
	missing := s.watchers
	rig.Eventually(ctx, 2*time.Minute, 20*time.Millisecond, func() bool {
		for len(missing) > 0 {
			w := missing[0]
			if int(w.count.Load()) < len(s.truth.expected(w.scope, firstState.changes[len(firstState.changes)-1].rv)) {
				return false
			}
			missing = missing[1:]
		}
		return true
	})
}

// sample samples until the function that it returns is called.
func (s *show) sample(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.sampler.run(ctx)
	}()
	return func() { cancel(); <-done }
}
