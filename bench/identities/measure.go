package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"spillway/bench/rig"
	"spillway/bench/rig/crowd"
	"spillway/bench/rig/swarm"
)

// measurement is what all sides are measured with.
type measurement struct {
	pair       *rig.Pair
	kubeconfig string // the proxy's
	crowd      *crowd.Accounts
}

// usage is what went on in a second, while objects were written.
type usage struct {
	upstream, proxy float64     // ms of CPU; 0 without a proxy
	reviews         rig.Reviews // by the kube-apiserver's count
	checks          rig.Reviews // by the proxy's
	held            float64     // watches that are sent nothing, because the checks come too late; at the end
	deliveries      float64
	trouble         string // what did not arrive; "" if all did
}

// patience is how long clients may go without a delivery until the others are given up.
const patience = 20 * time.Second

// measure writes for a while and reads, after the settling, what is used by a crowd, or by none.
func (m *measurement) measure(ctx context.Context, s *swarm.WatchSet, settling time.Duration) (usage, error) {
	if s != nil {
		s.Reset()
	}
	var u usage
	var written int
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		written, err = m.crowd.Writer().Run(ctx, *rate*crowd.Watches, 1, settling+*window+time.Second)
		return err
	})
	group.Go(func() (err error) {
		if err := rig.Sleep(ctx, settling); err != nil {
			return err
		}
		u, err = m.use(ctx)
		return err
	})
	if err := group.Wait(); err != nil {
		return u, err
	}
	if s == nil {
		rig.Say("without clients: %+v", u)
		return u, nil
	}
	want := m.crowd.Reached(written, crowd.Watches)
	if !s.Await(context.WithoutCancel(ctx), want, patience) || s.Seen() > want {
		u.trouble = fmt.Sprintf("%d deliveries instead of %d", s.Seen(), want)
	}
	if lost, how := s.Lost(); lost > 0 {
		u.trouble += fmt.Sprintf(" %d watches were lost (%v)", lost, how)
	}
	u.deliveries = float64(s.Seen()) / (settling + *window + time.Second).Seconds()
	rig.Say("%+v", u)
	return u, nil
}

// use is what is used in a window from now on. The cost of reading metrics lies outside.
func (m *measurement) use(ctx context.Context) (usage, error) {
	before, err := m.count(ctx)
	if err != nil {
		return usage{}, err
	}
	upstream, proxy, err := m.used()
	if err != nil {
		return usage{}, err
	}
	began := time.Now()
	if err := rig.Sleep(ctx, *window); err != nil {
		return usage{}, err
	}
	upstreamNow, proxyNow, err := m.used()
	if err != nil {
		return usage{}, err
	}
	took := time.Since(began)
	after, err := m.count(ctx)
	if err != nil {
		return usage{}, err
	}
	rate := func(d time.Duration) float64 { return d.Seconds() * 1e3 / took.Seconds() }
	between := after.at.Sub(before.at).Seconds()
	return usage{
		upstream: rate(upstreamNow - upstream), proxy: rate(proxyNow - proxy),
		reviews: after.reviews.Since(before.reviews).Per(between), checks: after.checks.Since(before.checks).Per(between),
		held: after.held,
	}, nil
}

// used is the CPU that the servers have used so far.
func (m *measurement) used() (upstream, proxy time.Duration, err error) {
	if upstream, err = m.pair.APIServer.CPU(); err == nil && m.pair.Proxy != nil {
		proxy, err = m.pair.Spillway.CPU()
	}
	return upstream, proxy, err
}

// counts are what has been counted at a time.
type counts struct {
	at              time.Time
	reviews, checks rig.Reviews
	held            float64
}

func (m *measurement) count(ctx context.Context) (counts, error) {
	c := counts{at: time.Now()}
	var err error
	if c.reviews, err = m.pair.Reviews(ctx); err == nil && m.pair.Proxy != nil {
		c.checks, c.held, err = m.pair.Proxy.Checks(ctx)
	}
	return c, err
}
