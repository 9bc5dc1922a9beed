package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/swarm"
)

// backgroundWatches are watches that stay while others come and go: the load of a proxy that has
// something to do.
type backgroundWatches struct {
	watches *swarm.WatchSet
	opened  time.Time
	cpu     time.Duration // that the proxy had used by then
}

// openSteady opens them over TLS; nil if none are wanted.
func (s *show) openSteady(ctx context.Context) (*backgroundWatches, error) {
	if *steadyWatches == 0 {
		return nil, nil
	}
	server := rig.Server{Name: "proxy", URL: s.proxy.TLSURL, Token: s.token, Pid: s.proxy.Pid()}
	newest, err := server.Newest(ctx, rig.ConfigMaps)
	if err != nil {
		return nil, err
	}
	forever := strconv.Itoa(int(lifetime().Seconds()))
	target := fmt.Sprintf("%s?watch=true&allowWatchBookmarks=true&timeoutSeconds=%s&resourceVersion=%d", rig.ConfigMaps,
		forever, newest)
	watches, err := swarm.Start(
		ctx, swarm.Options{Server: server, Targets: slices.Repeat([]string{target}, *steadyWatches), NoDelays: true})
	if err != nil {
		return nil, err
	}
	usage, err := s.proxy.Usage()
	return &backgroundWatches{watches: watches, opened: time.Now(), cpu: usage.CPU}, err
}

// lifetime of a watch that stays is longer than it is needed.
func lifetime() time.Duration { return *duration + time.Hour }

// close ends them.
func (w *backgroundWatches) close() {
	if w != nil {
		w.watches.Close()
	}
}

// checkSteady checks that none was lost.
func (s *show) checkSteady(w *backgroundWatches) error {
	if w == nil {
		return nil
	}
	usage, err := s.proxy.Usage()
	if err != nil {
		return err
	}
	lost, how := w.watches.Lost()
	took := time.Since(w.opened).Seconds()
	s.report.Check(lost == 0 && w.watches.Seen() > 0, "watches that stay as a load",
		"%d of %d were lost; %.0f deliveries per second, %.2f cores used by the proxy",
		lost, *steadyWatches, float64(w.watches.Seen())/took, (usage.CPU-w.cpu).Seconds()/took)
	if lost > 0 {
		s.report.Note("the first that was lost", "%v", how)
	}
	return nil
}
