package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/swarm"
)

// http2 compares HTTP/2 as clients speak it. A kubelet or an agent is a connection with a watch of
// each of its resources; a process with many informers is one with many. The same events over
// HTTP/1.1 tell what HTTP/2 adds.
func (s *show) http2(ctx context.Context) error {
	for _, shape := range []struct {
		perConn, burst int
		rate           float64
		limit          rig.Limit
	}{
		{1, 1, *rate, aloneLimit}, {1, 1, busier * *rate, aloneLimit}, {1, 16, *rate, aloneBurstsLimit},
		{20, 1, *rate, http2Limit}, {20, 1, busier * *rate, rig.NoLimit},
	} {
		name := fmt.Sprintf("HTTP/2, %d watches on a connection, %g/s", shape.perConn, shape.rate)
		if shape.burst > 1 {
			name += fmt.Sprintf(" in bursts of %d", shape.burst)
		}
		load := func(server rig.Server, perConn int) swarm.Load {
			l := s.load(server)
			l.PerConn, l.Rate, l.Burst = perConn, shape.rate, shape.burst
			l.While = max(l.While, time.Duration(float64(16*shape.burst)/shape.rate*float64(time.Second)))
			return l
		}
		loads := []swarm.Load{load(s.Spillway, shape.perConn), load(s.APIServer, shape.perConn)}
		if shape.perConn == 1 {
			floor, err := s.startFloor(ctx) // one for all would have garbage to collect
			if err != nil {
				return err
			}
			defer floor.stop()
			bare := load(floor.http2, 1)
			bare.FromNow, bare.Write = false, floor.run
			loads = append(loads, load(s.Spillway, 0), bare)
		}
		all, err := swarm.MeasureAll(ctx, *rounds, loads...)
		if err != nil {
			return err
		}
		ours := all[0].Of(swarm.Sample.PerDelivery)
		s.scores.Ratio("CPU per delivery, "+name, rig.Micros, ours, all[1].Of(swarm.Sample.PerDelivery), shape.limit)
		if len(all) > 2 {
			s.scores.RatioTo("CPU per delivery, "+name, "HTTP/1.1", rig.Micros, ours, all[2].Of(swarm.Sample.PerDelivery),
				http1Limit)
			s.leastHTTP2(name, all[3], all[1], all[2])
		}
		s.complete(name, all...)
		if shape.burst == 1 {
			s.delays(fmt.Sprintf("HTTP/2, %d on a connection", shape.perConn), shape.rate, all[0], all[1])
		}
	}
	return nil
}

// leastHTTP2 notes what is left of kube-apiserver's CPU, and of Spillway's over HTTP/1.1, where
// nothing but sends and reads of WINDOW_UPDATE frames is done.
func (s *show) leastHTTP2(name string, least, apiserver, http1 swarm.Samples) {
	cost := func(of swarm.Samples) float64 { return rig.Median(of.Of(swarm.Sample.PerDelivery)) }
	loop := cost(least)
	s.scores.Note("CPU per delivery of a bare loop, "+name, "%.2f µs, %.3f of kube-apiserver's, %.3f of Spillway's over "+
		"HTTP/1.1", loop, loop/cost(apiserver), loop/cost(http1))
}

// tenResources compares connections with a watch of each of ten resources, over which the events
// are spread.
func (s *show) tenResources(ctx context.Context) error {
	paths, collections, err := s.CreateOfEach(ctx, objectCount/8, *size)
	if err != nil {
		return err
	}
	writer := s.NewWriter(paths)
	name := fmt.Sprintf("CPU per delivery, HTTP/2, %d resources on a connection, %g/s", len(collections), *rate)
	_, _, err = s.compare(ctx, name, aloneLimit, func(l *swarm.Load) {
		var each []string
		for _, collection := range collections {
			each = append(each, collection+"?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600")
		}
		l.Targets, l.PerConn, l.Write = slices.Repeat(each, *watchers), len(each), writer.Run
	})
	return err
}

// twice compares when there are twice as many connections and five times as many events, of which
// Spillway must lose none.
func (s *show) twice(ctx context.Context) error {
	_, _, err := s.compare(ctx, fmt.Sprintf("CPU per delivery, HTTP/2, %d connections of one watch, %g/s", 2**watchers,
		busier**rate), rig.NoLimit, func(l *swarm.Load) {
		l.Targets, l.PerConn = slices.Repeat(l.Targets[:1], 2**watchers), 1
		l.Rate, l.Reach = busier**rate, 2**watchers
	})
	return err
}

// starts compares how many connections with one watch a server begins per second of CPU.
func (s *show) starts(ctx context.Context) error {
	var all [2][]float64
	for range *rounds {
		for i, server := range []rig.Server{s.Spillway, s.APIServer} {
			l := s.load(server)
			l.PerConn = 1
			before, err := server.CPU()
			if err != nil {
				return err
			}
			open, err := l.Open(ctx)
			if err != nil {
				return err
			}
			after, err := server.CPU()
			open.Close()
			if err != nil {
				return err
			}
			rig.Say("%s: %s of CPU for %d connections", server.Name, after-before, *watchers)
			all[i] = append(all[i], float64(*watchers)/(after-before).Seconds())
			time.Sleep(time.Second) // its share of the connections' end
		}
	}
	s.scores.Ratio("connections with one watch begun per second of CPU, HTTP/2", rig.PerSecond, all[0], all[1],
		startsLimit)
	return nil
}
