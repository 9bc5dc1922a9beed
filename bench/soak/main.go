// Command soak lets clients come and go in every way there is, for a given duration, beside clients
// that stay, while objects are written all the time and kube-apiserver is killed, started again and
// frozen now and then. It shows that nothing grows, that the clients that stay receive each event
// once and in order, and that those that have gone leave nothing behind: goroutines, file
// descriptors and memory return to their earlier level.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/bench/rig"
	"spillway/test/framework/controlplane"
)

var (
	duration = flag.Duration("duration", time.Minute, "how long clients come and go")
	crowd    = flag.Int("crowd", 100, "clients at a time")

	steadyWatches = flag.Int("steady", 500,
		"watches over TLS that stay meanwhile as a load, besides those that are held against the writes")
	results = flag.String("results", "",
		"write the table into this file too, in place of that between its markers, and draw beside it how the levels went")
	series = flag.String("series", "", "write all levels into this file, as CSV")
)

const (
	warmUp = 10 * time.Second // of coming and going before the base level is taken
	settle = 3 * time.Minute  // for what ends by a timer, such as idle connections upstream
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
	// A short history, which is full when the base level is taken, and short timeouts for stalled
	// clients.
	p, err := rig.StartProxy(ctx, cp.Kubeconfig(controlplane.Admin), "--resources=configmaps", "--listen-tls=127.0.0.1:0",
		"--insecure-allow-all", "--history-bytes=2Mi", "--history-min-age=1s", "--stall-timeout=2s")
	if err != nil {
		return err
	}
	defer p.Kill()
	s := &show{cp: cp, proxy: p, report: r, token: cp.Config(controlplane.Admin).BearerToken,
		outages: newOutages(*duration)}
	s.writer = &writer{
		maps: client.CoreV1().ConfigMaps(metav1.NamespaceDefault), ledger: &eventLedger{}, outages: s.outages,
		random: rand.New(rand.NewPCG(3, 3)),
	}
	writing, stopWriting := context.WithCancel(ctx)
	var writer sync.WaitGroup
	defer writer.Wait()
	defer stopWriting()
	writer.Go(func() { s.writer.run(writing) })
	return s.play(ctx)
}

// show is one run.
type show struct {
	cp       *controlplane.ControlPlane
	proxy    *rig.Proxy
	report   *rig.Report
	token    string // of the churn clients over TLS
	outages  *outages
	writer   *writer
	visitors churnCounts
	lulls    quietPeriods
}

func (s *show) play(ctx context.Context) error {
	warm, stop := context.WithTimeout(ctx, warmUp)
	s.churn(ctx, warm)
	stop()
	base, err := s.calm(ctx, nil)
	if err != nil {
		return err
	}
	rig.Say("base level: %s", describe(base))
	way, err := s.soak(ctx)
	if err != nil {
		return err
	}
	end, err := s.calm(ctx, base)
	if err != nil {
		return err
	}
	s.judgeSlopes(way)
	s.judge(base, end)
	s.checkVisits()
	if err := s.checkCounters(ctx); err != nil {
		return err
	}
	return s.record(way)
}

// soak is the time itself: all of it at once, and a look every few seconds.
func (s *show) soak(ctx context.Context) (*levelHistory, error) {
	staying, err := s.openSteady(ctx)
	if err != nil {
		return nil, err
	}
	defer staying.close()
	witnesses, err := s.openWitnesses(ctx)
	if err != nil {
		return nil, err
	}
	defer witnesses.close()
	way := &levelHistory{began: time.Now()}
	coming, stop := context.WithTimeout(ctx, *duration)
	defer stop()
	group, coming := errgroup.WithContext(coming)
	group.Go(func() error { return s.outages.play(coming, s.cp, planFor(*duration)) })
	group.Go(func() error { return way.watch(coming, s.proxy) })
	group.Go(func() error {
		return s.lulls.play(coming, func(ctx context.Context) error { return way.rest(ctx, s.proxy) })
	})
	group.Go(func() error { s.churn(ctx, coming); return ctx.Err() })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	s.finish(ctx, witnesses, way)
	return way, s.checkSteady(staying)
}

// record writes what was found into the document, draws it, and writes down all looks, where the
// flags request it.
func (s *show) record(way *levelHistory) error {
	if *series != "" {
		if err := way.write(*series, s.outages); err != nil {
			return err
		}
	}
	if *results == "" {
		return nil
	}
	title := fmt.Sprintf("%d watches that stay, %d clients that come and go", *steadyWatches+witnessCount(), *crowd)
	file, err := s.draw(way, title)
	if err != nil {
		return err
	}
	return s.report.Record(*results, title, file)
}

func describe(m *rig.Memory) string {
	return fmt.Sprintf("%d goroutines, %d file descriptors, heap %.1f MiB, RSS %.1f MiB", m.Goroutines, m.FDs,
		float64(m.Heap)/(1<<20), float64(m.RSS)/(1<<20))
}
