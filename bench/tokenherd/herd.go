package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/crowd"
	"spillway/bench/rig/swarm"
)

// tokenClients is the clients that reconnect, and the server they reconnect to.
type tokenClients struct {
	pair       *rig.Pair
	kubeconfig string // the proxy's
	crowd      *crowd.Accounts
}

// outcome is what came of one herd, from the cut, or from when the proxy was ready again, until all
// stream.
type outcome struct {
	usage
	took    time.Duration
	reviews rig.Reviews // that reached the kube-apiserver, those of the sweep included
	passed  float64     // watches that Spillway did not serve from memory
	again   int64       // connections that had to be tried again
}

// triesMost is how often a client tries to reconnect.
const triesMost = 20

// patience is how long clients may wait for an event that was written for them.
const patience = 20 * time.Second

// rush lets all stream, for a while if the server remains, cuts them off at once and lets them come
// back at once, to a new proxy if so wanted. They go on from where they were.
func (h *tokenClients) rush(ctx context.Context, server func() rig.Server, watches int, restart bool) (outcome, error) {
	o, err := h.crowd.Options(ctx, server(), watches)
	if err != nil {
		return outcome{}, err
	}
	first, err := swarm.Start(ctx, o)
	if err != nil {
		return outcome{}, err
	}
	defer first.Close()
	if err := h.streaming(ctx, first, watches); err != nil {
		return outcome{}, fmt.Errorf("before the cut: %w", err)
	}
	if restart {
		first.Close()
		if err := h.startProxy(ctx); err != nil {
			return outcome{}, err
		}
	} else if err := rig.Sleep(ctx, *pause); err != nil {
		return outcome{}, err
	}
	if o, err = h.crowd.Options(ctx, server(), watches); err != nil {
		return outcome{}, err
	}
	o.AtOnce, o.Tries = *clients, triesMost
	reviews, err := h.pair.Reviews(ctx)
	if err != nil {
		return outcome{}, err
	}
	before, err := h.used()
	if err != nil {
		return outcome{}, err
	}
	first.Close()
	began := time.Now()
	second, err := swarm.Start(ctx, o)
	if err != nil {
		return outcome{}, err
	}
	defer second.Close()
	result := outcome{took: time.Since(began), again: second.Again()}
	after, err := h.used()
	if err != nil {
		return outcome{}, err
	}
	result.usage = usage{after.upstream - before.upstream, after.proxy - before.proxy, after.clients - before.clients}
	now, err := h.pair.Reviews(ctx)
	if err != nil {
		return outcome{}, err
	}
	result.reviews = now.Since(reviews)
	if h.pair.Proxy != nil {
		serves, err := h.pair.Proxy.Streams(ctx)
		if err != nil {
			return outcome{}, err
		}
		result.passed = float64(len(o.Targets)) - serves
	}
	rig.Say("%s: %d watches each: %+v", server().Name, watches, result)
	return result, h.streaming(ctx, second, watches)
}

// usage is the CPU that each side has used.
type usage struct{ upstream, proxy, clients time.Duration }

func (h *tokenClients) used() (u usage, err error) {
	if u.upstream, err = h.pair.APIServer.CPU(); err != nil {
		return u, err
	}
	if h.pair.Proxy != nil {
		if u.proxy, err = h.pair.Spillway.CPU(); err != nil {
			return u, err
		}
	}
	u.clients, err = rig.CPUOf(os.Getpid())
	return u, err
}

// streaming writes to an object of each resource and waits until every client that watches it has
// it.
func (h *tokenClients) streaming(ctx context.Context, s *swarm.WatchSet, watches int) error {
	s.Reset()
	const perSecond = 50
	written, err := h.crowd.Writer().Run(ctx, perSecond, 1, crowd.Watches*time.Second/perSecond)
	if err != nil {
		return err
	}
	want := h.crowd.Reached(written, watches)
	arrived := s.Await(ctx, want, patience)
	if lost, how := s.Lost(); lost > 0 {
		return fmt.Errorf("%d watches were lost: %w", lost, how)
	}
	if !arrived || s.Seen() > want {
		return fmt.Errorf("%d deliveries instead of %d", s.Seen(), want)
	}
	return nil
}
