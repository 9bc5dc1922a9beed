// Command tokenherd compares what happens when many clients, each with a token of its own,
// reconnect at the same moment: how long it takes until all of them stream again, and what it costs
// a kube-apiserver, directly and through Spillway, which has to review each token and each
// permission.
package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/crowd"
)

var (
	clients = flag.Int("clients", 2000, "service accounts, each with a token and a connection")
	rounds  = flag.Int("rounds", 3, "how often each figure is measured; the median counts")
	pause   = flag.Duration("pause", 30*time.Second,
		"how long all stream before their connections are cut: longer than the sweep, so that what is remembered of them "+
			"is what it always is")
	proxyFlags = flag.String("proxy-flags", "", "more flags for the proxy, separated by spaces")
)

func main() { rig.Measure("tokenherd", run) }

func run(ctx context.Context, scores *rig.Scores) error {
	pair, err := rig.StartAPIServers(ctx)
	if err != nil {
		return err
	}
	defer pair.Stop()
	h := tokenClients{pair: pair}
	if h.kubeconfig, err = pair.ProxyKubeconfig(ctx); err != nil {
		return err
	}
	if h.crowd, err = crowd.New(ctx, pair, *clients); err != nil {
		return err
	}
	for _, watches := range []int{1, crowd.Watches} {
		if err := h.compare(ctx, scores, watches); err != nil {
			return fmt.Errorf("%d watches each: %w", watches, err)
		}
	}
	return nil
}

// startProxy starts a proxy with no identity cached, in place of the one that runs.
func (h *tokenClients) startProxy(ctx context.Context) error {
	if err := h.pair.StartProxyAs(ctx, h.kubeconfig, crowd.Resources, strings.Fields(*proxyFlags)...); err != nil {
		return err
	}
	return h.pair.Settle(ctx)
}

// compare measures herds of clients with so many watches each.
func (h *tokenClients) compare(ctx context.Context, scores *rig.Scores, watches int) error {
	var cut, restarted, direct outcomes
	spillway, apiserver := func() rig.Server { return h.pair.Spillway }, func() rig.Server { return h.pair.APIServer }
	for range *rounds {
		if err := h.startProxy(ctx); err != nil {
			return err
		}
		if err := cut.add(h.rush(ctx, spillway, watches, false)); err != nil {
			return fmt.Errorf("through Spillway: %w", err)
		}
		if err := restarted.add(h.rush(ctx, spillway, watches, true)); err != nil {
			return fmt.Errorf("through Spillway, restarted: %w", err)
		}
		h.pair.StopProxy()
		if err := direct.add(h.rush(ctx, apiserver, watches, false)); err != nil {
			return fmt.Errorf("at kube-apiserver: %w", err)
		}
	}
	all := fmt.Sprintf("%d clients of %d watches", *clients, watches)
	cut.report(scores, all+", cut off", direct)
	restarted.report(scores, all+", Spillway restarted", direct)
	return nil
}

// outcomes are those of one sort of herd, a round each.
type outcomes []outcome

func (all *outcomes) add(one outcome, err error) error {
	*all = append(*all, one)
	return err
}

func (all outcomes) of(figure func(outcome) float64) []float64 {
	var figures []float64
	for _, one := range all {
		figures = append(figures, figure(one))
	}
	return figures
}

// report writes what herds at Spillway came to, beside those at kube-apiserver.
func (all outcomes) report(scores *rig.Scores, what string, direct outcomes) {
	took := func(o outcome) float64 { return o.took.Seconds() }
	upstream := func(o outcome) float64 { return o.upstream.Seconds() }
	scores.Ratio(what+": until all stream", rig.Seconds, all.of(took), direct.of(took), rig.NoLimit)
	scores.Figure(what+": TokenReviews", "", rig.Count, all.of(func(o outcome) float64 { return o.reviews.Tokens }), nil,
		rig.NoLimit)
	scores.Figure(what+": SubjectAccessReviews", "", rig.Count,
		all.of(func(o outcome) float64 { return o.reviews.Access }), nil, rig.NoLimit)
	scores.Ratio(what+": CPU of kube-apiserver", rig.Seconds, all.of(upstream), direct.of(upstream), rig.NoLimit)
	scores.Figure(what+": CPU of Spillway", "", rig.Seconds, all.of(func(o outcome) float64 { return o.proxy.Seconds() }),
		nil, rig.NoLimit)
	scores.Figure(what+": watches that passed through", "", rig.Count, all.of(func(o outcome) float64 { return o.passed }),
		nil, rig.NoLimit)
	again := func(o outcome) float64 { return float64(o.again) }
	scores.Figure(what+": connections tried again", "", rig.Count, all.of(again), direct.of(again), rig.NoLimit)
	ours := func(o outcome) float64 { return o.clients.Seconds() }
	scores.Figure(what+": CPU of the clients themselves", "", rig.Seconds, all.of(ours), direct.of(ours), rig.NoLimit)
}
