package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"spillway/bench/rig"
	"spillway/bench/rig/plot"
	"spillway/bench/rig/swarm"
)

func (s *show) byWatchers(ctx context.Context) error {
	const spare = 500   // file descriptors that a process has open anyway
	const perSecond = 4 // few, so that each event is sent by itself and kube-apiserver is measured, not flooded
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	writer := s.NewWriter(s.paths)
	curve := s.newSweep("watchers", plot.Plot{
		Title: fmt.Sprintf("Cost of a delivery, %d events per second", perSecond), X: "watchers",
		Y: "µs of server CPU per delivery", Log: true,
	}, func(ctx context.Context, server rig.Server, n int) (sample, error) {
		one, err := delivery(ctx, server, n, perSecond, writer.Run)
		one.x = float64(n)
		return one, err
	})
	curve.row, curve.total, curve.unit, curve.shared = "a delivery to %d watchers", "CPU for n watchers", rig.Micros, true
	for _, n := range []int{300, 1000, 3000, 10000} {
		if n+spare > int(files.Max) {
			s.scores.Note("more watchers", "the limit of file descriptors is %d", files.Max)
			break
		}
		if err := curve.measureAt(ctx, n); err != nil {
			return err
		}
	}
	return curve.finish()
}

func (s *show) byRate(ctx context.Context) error {
	const watchers = 100 // few, so that the machine bears the rate
	writer, err := s.NewEtcdWriter(ctx, s.paths)
	if err != nil {
		return err
	}
	curve := s.newSweep("rate", plot.Plot{
		Title: fmt.Sprintf("Cost of a delivery, %d watchers", watchers), X: "events per second",
		Y: "µs of server CPU per delivery", Log: true,
	}, func(ctx context.Context, server rig.Server, n int) (sample, error) {
		return delivery(ctx, server, watchers, n, writer.Run)
	})
	curve.row, curve.total, curve.unit, curve.shared = "a delivery at %d events per second", "CPU for n events per second",
		rig.Micros, true
	for _, n := range []int{5, 20, 100, 500, 1000, 2000} {
		if err := curve.measureAt(ctx, n); err != nil {
			return err
		}
	}
	return curve.finish()
}

// write is what a swarm.Load writes with.
type write = func(ctx context.Context, perSecond float64, burst int, while time.Duration) (int, error)

// delivery measures µs per delivery, at the rate that was reached. Of a point at which watches or
// events are lost there is none.
func delivery(ctx context.Context, server rig.Server, watchers, rate int, write write) (sample, error) {
	const target = rig.ConfigMaps + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600"
	one, err := swarm.Load{
		Options: swarm.Options{Server: server, Targets: slices.Repeat([]string{target}, watchers)},
		FromNow: true, Rate: float64(rate), Burst: 1, While: *window, Reach: watchers, Write: write,
	}.Measure(ctx)
	return sample{x: float64(one.Written-1) / one.Took.Seconds(), y: one.PerDelivery(), trouble: one.Trouble}, err
}
