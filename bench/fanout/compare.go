package main

import (
	"context"
	"fmt"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/swarm"
)

// compare measures the same load on both servers, and adds the cost of a delivery to the scores.
func (s *show) compare(ctx context.Context, what string, limit rig.Limit, change func(*swarm.Load)) (spillway,
	apiserver swarm.Samples, err error) {
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

// complete says so if events did not arrive. Those of kube-apiserver may be lost: it ends watches
// that it cannot serve.
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

// delivery compares the cost and the delay of one event to many watchers, with and without TLS,
// with as little as there is to do.
func (s *show) delivery(ctx context.Context) error {
	floor, err := s.startFloor(ctx)
	if err != nil {
		return err
	}
	defer floor.stop()
	bare, sealed, alone := s.floorLoad(floor, floor.plain), s.floorLoad(floor, floor.secure), s.load(s.APIServer)
	alone.Targets, alone.Reach = alone.Targets[:1], 1
	all, err := swarm.MeasureAll(ctx, *rounds, s.load(s.Spillway), s.load(s.APIServer), s.load(s.Plain()), bare, sealed,
		alone)
	if err != nil {
		return err
	}
	tls, apiserver, plain, least, leastTLS, first := all[0], all[1], all[2], all[3], all[4], all[5]
	s.scores.Ratio("CPU per delivery, TLS", rig.Micros, tls.Of(swarm.Sample.PerDelivery),
		apiserver.Of(swarm.Sample.PerDelivery), tlsLimit)
	s.scores.RatioTo("CPU per delivery, plain", "TLS", rig.Micros, plain.Of(swarm.Sample.PerDelivery),
		apiserver.Of(swarm.Sample.PerDelivery), plainLimit)
	s.scores.RatioTo("CPU per delivery, plain", "bare loop of sends", rig.Micros, plain.Of(swarm.Sample.PerDelivery),
		least.Of(swarm.Sample.PerDelivery), floorLimit)
	s.scores.RatioTo("CPU per delivery, TLS", "bare loop, TLS", rig.Micros, tls.Of(swarm.Sample.PerDelivery),
		leastTLS.Of(swarm.Sample.PerDelivery), rig.NoLimit)
	s.leastCPU(least, leastTLS, apiserver)
	s.complete("delivery", tls, apiserver, least, leastTLS)
	s.complete("delivery, plain", plain)
	s.delays("TLS", *rate, tls, apiserver)
	s.leastDelays("", first, least, apiserver)
	s.leastDelays(", TLS", first, leastTLS, apiserver)
	return nil
}

// leastCPU notes what is left of kube-apiserver's CPU where nothing but sends is done.
func (s *show) leastCPU(least, leastTLS, apiserver swarm.Samples) {
	cost := func(of swarm.Samples) float64 { return rig.Median(of.Of(swarm.Sample.PerDelivery)) }
	plain, tls, other := cost(least), cost(leastTLS), cost(apiserver)
	s.scores.Note("CPU per delivery of a bare loop of sends", "%.2f µs, %.3f of kube-apiserver's; over TLS %.2f µs, %.3f",
		plain, plain/other, tls, tls/other)
}

// leastDelays notes what the delays would be of a proxy that does nothing but send: first those of
// a watcher that is kube-apiserver's only one, then those of a bare loop, whose events come from
// nowhere. What lies between that and the limit is what all else may take.
func (s *show) leastDelays(over string, first, least, apiserver swarm.Samples) {
	if s.wire != nil {
		return
	}
	before := rig.Median(first.Delay(50))
	for _, percent := range []int{50, 99} {
		loop, many := rig.Median(least.Delay(percent)), rig.Median(apiserver.Delay(percent))
		s.scores.Note(fmt.Sprintf("delay at %g/s of a proxy that only sends%s: p%d", *rate, over, percent),
			"%.2f ms: %.2f for the only watcher of kube-apiserver (p50), and then %.2f in the bare loop; %.3f of "+
				"kube-apiserver's", before+loop, before, loop, (before+loop)/many)
	}
}

// delays adds the delays to the scores, but for those on a wire: they are its own, because it takes
// longer for a packet than a sender does.
func (s *show) delays(over string, rate float64, spillway, apiserver swarm.Samples) {
	if s.wire != nil {
		return
	}
	for _, percent := range []int{50, 99} {
		s.scores.Ratio(fmt.Sprintf("delay at %g/s, %s: p%d", rate, over, percent), rig.Millis, spillway.Delay(percent),
			apiserver.Delay(percent), delayLimit)
	}
}

// bursts compares when as many events come in bursts, and a bare loop that sends each burst as one;
// and, without a limit, when the bursts come as often as events do otherwise, which is more than
// kube-apiserver bears.
func (s *show) bursts(ctx context.Context) error {
	const burst, least = 16, 16 // events in each, and bursts at least
	at := func(l *swarm.Load, perSecond float64) {
		l.Burst, l.Rate = burst, perSecond
		l.While = max(l.While, time.Duration(least*burst/perSecond*float64(time.Second)))
	}
	floor, err := s.startFloor(ctx)
	if err != nil {
		return err
	}
	defer floor.stop()
	loads := []swarm.Load{s.load(s.Spillway), s.load(s.APIServer), s.floorLoad(floor, floor.secure)}
	for i := range loads {
		at(&loads[i], *rate)
	}
	all, err := swarm.MeasureAll(ctx, *rounds, loads...)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("CPU per delivery, TLS, %%g/s in bursts of %d", burst)
	ours, theirs, bare := all[0].Of(swarm.Sample.PerDelivery), all[1].Of(swarm.Sample.PerDelivery),
		all[2].Of(swarm.Sample.PerDelivery)
	s.scores.Ratio(fmt.Sprintf(what, *rate), rig.Micros, ours, theirs, burstsLimit)
	s.scores.RatioTo(fmt.Sprintf(what, *rate), "bare loop, TLS", rig.Micros, ours, bare, rig.NoLimit)
	s.complete(fmt.Sprintf(what, *rate), all...)
	if s.wire != nil {
		return nil // which does not carry as much
	}
	flood := burst * *rate
	_, _, err = s.compare(ctx, fmt.Sprintf(what, flood), rig.NoLimit, func(l *swarm.Load) { at(l, flood) })
	return err
}

// protobuf compares what client-go requests.
func (s *show) protobuf(ctx context.Context) error {
	_, _, err := s.compare(ctx, "CPU per delivery, TLS, protobuf", protobufLimit, func(l *swarm.Load) {
		l.Accept = "application/vnd.kubernetes.protobuf;stream=watch"
	})
	return err
}

// busier is how many times as much there is to do where delays are looked at once more.
const busier = 5

// busy compares delays when there is five times as much to do.
func (s *show) busy(ctx context.Context) error {
	busy := busier * *rate
	spillway, apiserver, err := s.compare(ctx, fmt.Sprintf("CPU per delivery, TLS, %g/s", busy), rig.NoLimit,
		func(l *swarm.Load) { l.Rate = busy })
	if err != nil {
		return err
	}
	s.delays("TLS", busy, spillway, apiserver)
	return nil
}
