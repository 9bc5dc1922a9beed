// Command consistent shows what reads of the most recent state cost through the proxy: GETs and
// LISTs with resourceVersion unset, each right before or after the same request straight at the
// API server, of a resource that changes all the time and of one that never does; and informers
// that start on a quiet one.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"spillway/bench/rig"
	"spillway/test/framework/controlplane"
)

var (
	getCount   = flag.Int("gets", 2000, "pairs of GETs of each resource")
	listCount  = flag.Int("lists", 300, "pairs of LISTs of each resource")
	startCount = flag.Int("starts", 120, "informers that start on each quiet resource")
	writeRate  = flag.Float64("rate", 100, "writes per second to the busy resource")
)

const (
	getSlack, getSlackRare = time.Millisecond, 5 * time.Millisecond // what a GET may take longer: p50, p99
	listFactor             = 1.1                                    // what a LIST may take as a multiple: p50
	startMost              = 2500 * time.Millisecond                // what an informer may take to start: p99
)

func main() { rig.Main("consistent", run) }

func run(ctx context.Context, r *rig.Report) error {
	cp, err := rig.StartControlPlane(ctx)
	if err != nil {
		return err
	}
	defer cp.Stop()
	config := cp.Config(controlplane.Admin)
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := makeObjects(ctx, clients); err != nil {
		return err
	}
	proxy, err := rig.StartProxy(ctx, cp.Kubeconfig(controlplane.Admin),
		"--resources=configmaps,podtemplates,limitranges", "--listen-tls=127.0.0.1:0", "--insecure-allow-all")
	if err != nil {
		return err
	}
	defer proxy.Kill()
	// Both ways over TLS and HTTP/1.1, with the same credentials.
	s := &show{
		report: r, client: rig.NewTLSClient(config.BearerToken), direct: cp.URL(), proxy: proxy.TLSURL,
		metrics: proxy.Metrics(),
	}
	playing, end := context.WithCancel(ctx)
	var writing sync.WaitGroup
	defer writing.Wait()
	defer end()
	var wrote error
	var writes int
	writing.Go(func() { writes, wrote = write(playing, clients, *writeRate) })
	began := time.Now()
	if err := s.play(ctx); err != nil {
		return err
	}
	end()
	writing.Wait()
	rate := float64(writes) / time.Since(began).Seconds()
	r.CheckError(wrote, "the busy resource changed all the time", "%.0f writes per second", rate)
	return nil
}

// show is one run.
type show struct {
	report        *rig.Report
	client        *http.Client
	direct, proxy string
	metrics       *rig.Scraper
}

func (s *show) play(ctx context.Context) error {
	for _, of := range []struct{ what, collection, name string }{
		{"busy", "/api/v1/namespaces/" + namespace + "/configmaps", "busy-0000"},
		{"quiet", "/api/v1/namespaces/" + namespace + "/limitranges", "few-0000"},
	} {
		if err := s.gets(ctx, of.what, of.collection+"/"+of.name); err != nil {
			return err
		}
		if err := s.lists(ctx, of.what, of.collection); err != nil {
			return err
		}
	}
	for _, of := range []struct{ what, resource string }{
		{fmt.Sprintf("quiet, %d objects", quietObjects), "podtemplates"}, {fmt.Sprintf("quiet, %d objects", fewObjects),
			"limitranges"},
	} {
		if err := s.starts(ctx, of.what, "/api/v1/"+of.resource); err != nil {
			return err
		}
	}
	return nil
}

// gets compares GETs.
func (s *show) gets(ctx context.Context, what, target string) error {
	p, err := s.pairs(ctx, *getCount, target)
	if err != nil {
		return err
	}
	d, v := p.direct, p.proxied
	s.report.Check(v.at(50) <= d.at(50)+getSlack && v.at(99) <= d.at(99)+getSlackRare, "GET, "+what,
		"p50 %s, direct %s; p99 %s, direct %s (%d pairs)", text(v.at(50)), text(d.at(50)), text(v.at(99)), text(d.at(99)),
		len(d))
	return nil
}

// lists compares LISTs.
func (s *show) lists(ctx context.Context, what, target string) error {
	before, err := s.recent(ctx)
	if err != nil {
		return err
	}
	p, err := s.pairs(ctx, *listCount, target)
	if err != nil {
		return err
	}
	after, err := s.recent(ctx)
	if err != nil {
		return err
	}
	d, v := p.direct, p.proxied
	s.report.Check(float64(v.at(50)) <= listFactor*float64(d.at(50)), "LIST, "+what,
		"p50 %s, direct %s: %.2f×; p99 %s, direct %s (%d pairs of %d KiB; %.0f from memory, %.0f after a timeout)",
		text(v.at(50)), text(d.at(50)),
		float64(v.at(50))/float64(d.at(50)), text(v.at(99)), text(d.at(99)), len(d), p.bytes>>10,
		after["memory"]-before["memory"], after["upstream_after_timeout"]-before["upstream_after_timeout"])
	return nil
}

// recent counts the LISTs of the most recent state by how they were answered.
func (s *show) recent(ctx context.Context) (map[string]float64, error) {
	const name = "spillway_consistent_lists_total"
	m, err := s.metrics.Read(ctx, name)
	return m.By(name, "source"), err
}

// starts starts informers, as many at a time as come.
func (s *show) starts(ctx context.Context, what, collection string) error {
	direct, err := s.informers(ctx, s.direct+collection)
	if err != nil {
		return err
	}
	proxied, err := s.informers(ctx, s.proxy+collection)
	if err != nil {
		return err
	}
	s.report.Check(proxied.whole(99) <= startMost, "informer start, "+what,
		"p50 %s, p99 %s, most %s; direct p50 %s, p99 %s (%d starts)",
		text(proxied.whole(50)), text(proxied.whole(99)), text(proxied.whole(100)), text(direct.whole(50)),
		text(direct.whole(99)), len(proxied))
	return nil
}
