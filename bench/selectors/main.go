// Command selectors compares what an event costs Spillway and kube-apiserver when each of many
// watchers selects the pods of another node, as kubelets do: the event concerns one of them.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/swarm"
)

var (
	watchers = flag.Int("watchers", 5000, "watches, each of the pods of a node of its own")
	pods     = flag.Int("pods", 1000, "pods, each on a node of its own; nothing happens to those of the other nodes")
	rate     = flag.Float64("rate", 200, "events per second")
	rounds   = flag.Int("rounds", 3, "how often each figure is measured; the median counts")
	window   = flag.Duration("window", 5*time.Second, "how long events are written in each measurement")
)

var limit = rig.AtMost(0.5, 0.2)

func main() { rig.Measure("selectors", run) }

func run(ctx context.Context, scores *rig.Scores) error {
	if *pods > *watchers {
		return fmt.Errorf("%d pods for %d watchers: some events would reach no watcher", *pods, *watchers)
	}
	pair, err := rig.StartPair(ctx, "pods")
	if err != nil {
		return err
	}
	defer pair.Stop()
	if err := pair.CreatePods(ctx, 0, *pods, *watchers); err != nil {
		return err
	}
	var paths, targets []string
	for i := range *pods {
		paths = append(paths, rig.PodPath(i))
	}
	for i := range *watchers {
		targets = append(targets, rig.AllPods+
			"?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&fieldSelector=spec.nodeName%3D"+rig.NodeName(i))
	}
	writer := pair.NewWriter(paths)
	load := func(server rig.Server) swarm.Load {
		return swarm.Load{
			Options: swarm.Options{Server: server, Targets: targets},
			FromNow: true, Rate: *rate, Burst: 1, While: *window, Reach: 1, Write: writer.Run,
		}
	}
	all, err := swarm.MeasureAll(ctx, *rounds, load(pair.Spillway), load(pair.APIServer))
	if err != nil {
		return err
	}
	scores.Ratio(fmt.Sprintf("CPU per event, %d watchers by node, %g/s", *watchers, *rate), rig.Micros,
		all[0].Of(swarm.Sample.PerWrite), all[1].Of(swarm.Sample.PerWrite), limit)
	scores.Ratio("delay: p50", rig.Millis, all[0].Delay(50), all[1].Delay(50), rig.NoLimit)
	scores.Ratio("delay: p99", rig.Millis, all[0].Delay(99), all[1].Delay(99), rig.NoLimit)
	for i, name := range []string{"Spillway", "kube-apiserver"} {
		if trouble := all[i].Trouble(); trouble != "" {
			scores.Miss("not all arrived", "%s: %s", name, trouble)
		}
	}
	return nil
}
