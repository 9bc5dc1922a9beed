// Command soak lets clients come and go in every way there is, for as long as asked, and shows that they leave nothing behind:
// goroutines, file descriptors and memory come back to where they were.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/bench/rig"
	"spillway/test/controlplane"
)

var (
	duration = flag.Duration("duration", time.Minute, "how long clients come and go")
	crowd    = flag.Int("crowd", 100, "clients at a time")

	steadyWatches = flag.Int("steady", 0, "watches that stay meanwhile, over TLS; what the proxy needs must then stay the same, too")
	results       = flag.String("results", "", "write the checks into this file too, in place of those between its markers, and draw beside it how RSS went")
)

const (
	warmUp  = 10 * time.Second // of coming and going before the base level is taken
	settle  = 3 * time.Minute  // for what ends by a timer, such as idle connections upstream
	objects = 60
)

func main() { rig.Main("soak", run) }

func run(ctx context.Context, r *rig.Report) error {
	cp, err := rig.StartControlPlane(ctx)
	if err != nil {
		return err
	}
	defer cp.Stop()
	client, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	if err != nil {
		return err
	}
	// A short history, which is full when the base level is taken, and a short patience with those who stall.
	p, err := rig.StartProxy(ctx, cp.Kubeconfig(controlplane.Admin), "--resources=configmaps", "--listen-tls=127.0.0.1:0",
		"--insecure-allow-all", "--history-bytes=2Mi", "--history-min-age=1s", "--stall-timeout=2s")
	if err != nil {
		return err
	}
	defer p.Kill()
	s := &show{proxy: p, report: r, token: cp.Config(controlplane.Admin).BearerToken}
	writing, stopWriting := context.WithCancel(ctx)
	var writer sync.WaitGroup
	defer writer.Wait()
	defer stopWriting()
	writer.Go(func() { r.CheckError(write(writing, client), "writes", "one every %s, all the time", writeEvery) })
	return s.play(ctx)
}

// show is one run.
type show struct {
	proxy  *rig.Proxy
	report *rig.Report
	token  string // of those who come over TLS

	visits   [16]atomic.Int64 // by index in visits
	failures atomic.Int64
}

func (s *show) play(ctx context.Context) error {
	if err := s.churn(ctx, warmUp, nil); err != nil {
		return err
	}
	base, err := s.calm(ctx, nil)
	if err != nil {
		return err
	}
	rig.Say("base level: %s", describe(base))
	s.report.Note("base level", "%s", describe(base))
	staying, err := s.openSteady(ctx)
	if err != nil {
		return err
	}
	var way course
	if err := s.churn(ctx, *duration, &way); err != nil {
		return err
	}
	if err := s.closeSteady(staying); err != nil {
		return err
	}
	end, err := s.calm(ctx, base)
	if err != nil {
		return err
	}
	s.report.Note("at the end", "%s", describe(end))
	for i, v := range visits {
		s.report.Note("visits", "%d × %s", s.visits[i].Load(), v.name)
	}
	s.report.Check(s.failures.Load() == 0, "visits that failed", "%d", s.failures.Load())
	s.judge(base, end)
	s.judgeCourse(&way)
	if err := s.checkCounters(ctx); err != nil || *results == "" {
		return err
	}
	return s.record(&way)
}

// churn lets clients come and go for a while, and returns when all have gone. Until they stop coming it writes down, if asked, how the
// proxy's levels go.
func (s *show) churn(ctx context.Context, while time.Duration, way *course) error {
	coming, stop := context.WithTimeout(ctx, while)
	defer stop()
	var clients sync.WaitGroup
	for i := range *crowd {
		clients.Go(func() { s.client(ctx, coming, i) })
	}
	done := make(chan struct{})
	go func() {
		clients.Wait()
		close(done)
	}()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return ctx.Err()
		case <-tick.C:
			if way == nil || coming.Err() != nil {
				continue
			}
			if err := way.look(ctx, s.proxy); err != nil {
				return err
			}
		}
	}
}

// client pays visits until coming ends; the last one ends in its own time.
func (s *show) client(ctx, coming context.Context, i int) {
	v := &visitor{base: s.proxy.URL, client: rig.NewHTTPClient(), random: rand.New(rand.NewPCG(2, uint64(i))), stay: 4 * time.Second}
	if i%4 == 0 {
		v.base, v.client = s.proxy.TLSURL, rig.NewTLSClient(s.token)
	}
	defer v.client.CloseIdleConnections()
	for coming.Err() == nil {
		n := v.random.IntN(len(visits))
		visiting, cancel := context.WithTimeout(ctx, patience)
		err := visits[n].pay(v, visiting)
		late := visiting.Err() != nil
		cancel()
		s.visits[n].Add(1)
		if ctx.Err() == nil && (err != nil || late) {
			if s.failures.Add(1) <= 5 {
				rig.Say("%s: %v (took longer than %s: %v)", visits[n].name, err, patience, late)
			}
		}
		if v.random.IntN(4) == 0 {
			v.client.CloseIdleConnections()
		}
	}
}

const writeEvery = 30 * time.Millisecond

// write changes objects until ctx ends.
func write(ctx context.Context, client kubernetes.Interface) error {
	maps := client.CoreV1().ConfigMaps("default")
	random := rand.New(rand.NewPCG(3, 3))
	for turn := 0; ctx.Err() == nil; turn++ {
		n := turn % objects
		o := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: "soak-" + strconv.Itoa(n), Labels: map[string]string{"n": strconv.Itoa(random.IntN(10))},
				Annotations: map[string]string{"at": rig.StampPrefix + strconv.FormatInt(time.Now().UnixNano(), 10)},
			},
			Data: map[string]string{"turn": strconv.Itoa(turn), "padding": strings.Repeat("x", 4<<10)},
		}
		var err error
		switch {
		case turn < objects:
			_, err = maps.Create(ctx, o, metav1.CreateOptions{})
		case random.IntN(10) == 0:
			if err = maps.Delete(ctx, o.Name, metav1.DeleteOptions{}); err == nil {
				_, err = maps.Create(ctx, o, metav1.CreateOptions{})
			}
		default:
			_, err = maps.Update(ctx, o, metav1.UpdateOptions{})
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("write: %w", err)
		}
		select {
		case <-time.After(writeEvery):
		case <-ctx.Done():
		}
	}
	return nil
}

func describe(m *rig.Memory) string {
	return fmt.Sprintf("%d goroutines, %d file descriptors, heap %.1f MiB, RSS %.1f MiB", m.Goroutines, m.FDs, float64(m.Heap)/(1<<20), float64(m.RSS)/(1<<20))
}
