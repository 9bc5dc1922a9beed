package main

import (
	"context"
	"fmt"

	"spillway/bench/rig"
	"spillway/bench/rig/swarm"
)

// compare measures the same load on both servers, and adds the cost of a delivery to the scores.
func (s *show) compare(ctx context.Context, what string, limit rig.Limit, change func(*swarm.Load)) (spillway, apiserver swarm.Samples, err error) {
	a, b := s.load(s.Spillway), s.load(s.APIServer)
	change(&a)
	change(&b)
	all, err := swarm.MeasureAll(ctx, *rounds, a, b)
	if err != nil {
		return nil, nil, err
	}
	s.scores.Ratio(what, rig.Micros, all[0].Of(swarm.Sample.PerDelivery), all[1].Of(swarm.Sample.PerDelivery), limit)
	s.complete(what, all...)
	return all[0], all[1], nil
}

// complete says so if events did not arrive. Those of kube-apiserver may be lost: it ends watches that it cannot serve.
func (s *show) complete(what string, all ...swarm.Samples) {
	if trouble := all[0].Trouble(); trouble != "" {
		s.scores.Miss(what+": not all arrived", "Spillway: %s", trouble)
	}
	for _, other := range all[1:] {
		if trouble := other.Trouble(); trouble != "" {
			s.scores.Note(what+": not all arrived", "not Spillway's: %s", trouble)
		}
	}
}

// delivery compares the cost and the delay of one event to many watchers, with and without TLS, and without TLS with as little as there
// is to do.
func (s *show) delivery(ctx context.Context) error {
	floor, err := s.startFloor(ctx)
	if err != nil {
		return err
	}
	defer floor.stop()
	bare := s.load(floor.server)
	bare.Collection, bare.Write = "", floor.run
	all, err := swarm.MeasureAll(ctx, *rounds, s.load(s.Spillway), s.load(s.APIServer), s.load(s.Plain()), bare)
	if err != nil {
		return err
	}
	tls, apiserver, plain, least := all[0], all[1], all[2], all[3]
	s.scores.Ratio("CPU per delivery, TLS", rig.Micros, tls.Of(swarm.Sample.PerDelivery), apiserver.Of(swarm.Sample.PerDelivery), tlsLimit)
	s.scores.RatioTo("CPU per delivery, plain", "TLS", rig.Micros, plain.Of(swarm.Sample.PerDelivery), apiserver.Of(swarm.Sample.PerDelivery), plainLimit)
	s.scores.RatioTo("CPU per delivery, plain", "bare loop of sends", rig.Micros, plain.Of(swarm.Sample.PerDelivery), least.Of(swarm.Sample.PerDelivery), floorLimit)
	s.complete("delivery", tls, apiserver, least)
	s.complete("delivery, plain", plain)
	s.delays(*rate, tls, apiserver)
	return nil
}

// delays adds the delays to the scores.
func (s *show) delays(rate float64, spillway, apiserver swarm.Samples) {
	s.scores.Ratio(fmt.Sprintf("delay at %g/s, TLS: p50", rate), rig.Millis, spillway.Delay(50), apiserver.Delay(50), delayLimit)
	s.scores.Ratio(fmt.Sprintf("delay at %g/s, TLS: p99", rate), rig.Millis, spillway.Delay(99), apiserver.Delay(99), delayLimit)
}

// bursts compares when events come in bursts.
func (s *show) bursts(ctx context.Context) error {
	_, _, err := s.compare(ctx, "CPU per delivery, TLS, bursts of 16", burstsLimit, func(l *swarm.Load) { l.Burst, l.Rate = 16, 2**rate })
	return err
}

// protobuf compares what client-go asks for.
func (s *show) protobuf(ctx context.Context) error {
	_, _, err := s.compare(ctx, "CPU per delivery, TLS, protobuf", protobufLimit, func(l *swarm.Load) { l.Accept = "application/vnd.kubernetes.protobuf;stream=watch" })
	return err
}

// http2 compares HTTP/2, as processes with many informers use it.
func (s *show) http2(ctx context.Context) error {
	const perConn = 20
	_, _, err := s.compare(ctx, fmt.Sprintf("CPU per delivery, HTTP/2, %d watches per connection", perConn), http2Limit, func(l *swarm.Load) { l.PerConn = perConn })
	return err
}

// busy compares delays when there is five times as much to do.
func (s *show) busy(ctx context.Context) error {
	busy := 5 * *rate
	spillway, apiserver, err := s.compare(ctx, fmt.Sprintf("CPU per delivery, TLS, %g/s", busy), rig.NoLimit, func(l *swarm.Load) { l.Rate = busy })
	if err != nil {
		return err
	}
	s.delays(busy, spillway, apiserver)
	return nil
}
