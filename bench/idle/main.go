// Command idle compares what a watch costs Spillway and kube-apiserver in memory on which nothing
// happens.
package main

import (
	"context"
	"flag"
	"fmt"
	"slices"

	"spillway/bench/rig"
	"spillway/bench/rig/swarm"
)

var (
	watchers = flag.Int("watchers", 5000, "watches")
	rounds   = flag.Int("rounds", 3,
		"how often each figure is measured, each time by new processes of Spillway; the median counts")
)

// Limits of kB per watch.
var (
	tlsLimit     = rig.AtMost(13, 9)
	plainLimit   = rig.AtMost(3, 1.2)
	connLimit    = rig.AtMost(16, 12)
	furtherLimit = rig.AtMost(1.5, 1)
)

func main() { rig.Measure("idle", run) }

func run(ctx context.Context, scores *rig.Scores) error {
	pair, err := rig.StartPair(ctx, "configmaps")
	if err != nil {
		return err
	}
	defer pair.Stop()
	var tls, plain, apiserver figures
	alone, shared := figures{perConn: 1}, figures{perConn: 10}
	for round := range *rounds {
		for _, side := range []struct {
			figures *figures
			server  func() rig.Server
			gauge   func() rig.Gauge
		}{
			{&tls, func() rig.Server { return pair.Spillway }, func() rig.Gauge { return pair.Proxy.Gauge() }},
			{&plain, pair.Plain, func() rig.Gauge { return pair.Proxy.Gauge() }},
			{&alone, func() rig.Server { return pair.Spillway }, func() rig.Gauge { return pair.Proxy.Gauge() }},
			{&shared, func() rig.Server { return pair.Spillway }, func() rig.Gauge { return pair.Proxy.Gauge() }},
			{&apiserver, func() rig.Server { return pair.APIServer }, pair.APIServerGauge},
		} {
			if side.figures == &apiserver && round > 0 {
				continue // its memory stays at its peak: only the first watches can be separated from that
			}
			if err := pair.StartProxy(ctx, "configmaps"); err != nil {
				return err
			}
			if err := side.figures.add(ctx, side.server(), side.gauge()); err != nil {
				return err
			}
		}
	}
	scores.Figure("RSS per idle connection with one watch, HTTP/2", "", rig.Kilobytes, alone.rss, nil, connLimit)
	scores.Figure("RSS per further watch on it", "", rig.Kilobytes, shared.further(alone), nil, furtherLimit)
	scores.Figure("RSS per idle watch, TLS", "", rig.Kilobytes, tls.rss, apiserver.rss, tlsLimit)
	scores.Figure("RSS per idle watch, plain", "", rig.Kilobytes, plain.rss, nil, plainLimit)
	scores.Figure("of that in use, TLS", "", rig.Kilobytes, tls.held, apiserver.held, rig.NoLimit)
	scores.Figure("of that in use, plain", "", rig.Kilobytes, plain.held, nil, rig.NoLimit)
	scores.Figure("of that in use, HTTP/2, one watch", "", rig.Kilobytes, alone.held, nil, rig.NoLimit)
	return nil
}

// figures are kB per watch, a round each.
type figures struct {
	perConn   int // watches on each connection, by HTTP/2; 0 is HTTP/1.1
	held, rss []float64
}

// further is what each watch beyond the first of its connection takes, if the first of them takes
// what each of alone does.
func (f *figures) further(alone figures) (all []float64) {
	n := float64(f.perConn)
	for i, rss := range f.rss {
		all = append(all, (n*rss-alone.rss[i])/(n-1))
	}
	return all
}

// add measures the memory of a server before and with its watches.
func (f *figures) add(ctx context.Context, server rig.Server, gauge rig.Gauge) error {
	// Connections have been opened and closed before anything is read: what they leave behind is not
	// the watches'.
	if err := f.visit(ctx, server, *watchers/10, nil); err != nil {
		return err
	}
	before, err := gauge.Read(ctx)
	if err != nil {
		return err
	}
	var after rig.Resident
	err = f.visit(ctx, server, *watchers, func() (err error) {
		after, err = gauge.Read(ctx)
		return err
	})
	if err != nil {
		return err
	}
	per := func(before, after int64) float64 { return float64(after-before) / 1e3 / float64(*watchers) }
	f.held = append(f.held, per(before.Held, after.Held))
	f.rss = append(f.rss, per(before.RSS, after.RSS))
	rig.Say("%s: %.2f kB held, %.2f kB resident per watch", server.Name, f.held[len(f.held)-1], f.rss[len(f.rss)-1])
	return nil
}

// visit opens watches, does something and closes them.
func (f *figures) visit(ctx context.Context, server rig.Server, n int, with func() error) error {
	newest, err := server.Newest(ctx, rig.ConfigMaps)
	if err != nil {
		return err
	}
	target := fmt.Sprintf("%s?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion=%d", rig.ConfigMaps,
		newest)
	s, err := swarm.Start(ctx, swarm.Options{Server: server, Targets: slices.Repeat([]string{target}, n),
		PerConn: f.perConn})
	if err != nil {
		return err
	}
	defer s.Close()
	if with == nil {
		return nil
	}
	if err := with(); err != nil {
		return err
	}
	if lost, how := s.Lost(); lost > 0 {
		return fmt.Errorf("%d watches were lost: %w", lost, how)
	}
	return nil
}
