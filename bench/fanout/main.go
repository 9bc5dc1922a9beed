// Command fanout compares what it costs Spillway and kube-apiserver to deliver events to many
// watchers, and how late they are: the same objects, the same writes, the same clients, in turn.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/swarm"
	"spillway/bench/rig/wire"
)

var (
	watchers = flag.Int("watchers", 1000, "watches of one resource")
	rounds   = flag.Int("rounds", 3, "how often each figure is measured; the median counts")
	window   = flag.Duration("window", 5*time.Second, "how long events are written in each measurement")
	rate     = flag.Float64("rate", 20, "events per second")
	size     = flag.Int("size", 2<<10, "bytes of JSON of each object")
	wired    = flag.Bool("wire", false,
		"let clients be on a network of their own, so that no server is charged for what they receive, and measure what "+
			"that tells: CPU; needs root")
	parts = flag.String("parts", "", "measure only these: "+(&show{}).parts().Names())
)

// Limits of ratios to kube-apiserver, over TLS and HTTP/1.1 unless said otherwise.
var (
	tlsLimit      = rig.AtMost(0.40, 0.25)
	plainLimit    = rig.AtMost(0.27, 0.20)
	burstsLimit   = rig.AtMost(0.15, 0.08)
	protobufLimit = rig.AtMost(0.35, 0.25)
	http2Limit    = rig.AtMost(0.45, 0.30)
	// A connection for each watch.
	aloneLimit       = rig.AtMost(0.36, 0.28)
	aloneBurstsLimit = rig.AtMost(0.20, 0.12)
	http1Limit       = rig.AtMost(1.25, 1.10) // as a multiple of HTTP/1.1
	startsLimit      = rig.AtLeast(1, 2)
	delayLimit       = rig.AtMost(0.5, 0.25)
	sustainedLimit   = rig.AtLeast(5, 10)
	floorLimit       = rig.AtMost(1.35, 1.15) // Spillway plain as a multiple of a bare loop of sends
	listsLimit       = rig.AtMost(2, 1.3)     // a delay among LISTs as a multiple of one without
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == floorCommand {
		if err := serveFloor(eventFD(os.Stdin.Fd()), os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "floor:", err)
			os.Exit(1)
		}
		return
	}
	rig.Measure("fanout", run)
}

// show is one run.
type show struct {
	*rig.Pair
	scores *rig.Scores
	writer *rig.Writer
	wire   *wire.Wire // nil: clients are on loopback

	used map[string]float64 // cores, by the server that sustained so much
}

// objectCount is how many objects are written to in turn: more than are written to at once.
const objectCount = 64

// parts are all there is to measure; on a wire, what it can carry: 100,000 packets a second are too
// much for its one thread.
func (s *show) parts() rig.Parts {
	light := rig.Parts{{Name: "delivery", Play: s.delivery}, {Name: "bursts", Play: s.bursts},
		{Name: "protobuf", Play: s.protobuf}}
	if s.wire != nil {
		return light
	}
	clients := rig.Parts{{Name: "http2", Play: s.http2}, {Name: "ten", Play: s.tenResources},
		{Name: "twice", Play: s.twice}, {Name: "starts", Play: s.starts}}
	return slices.Concat(clients, light, rig.Parts{
		{Name: "busy", Play: s.busy}, {Name: "lists", Play: s.lists}, {Name: "sustained", Play: s.sustained},
	})
}

func run(ctx context.Context, scores *rig.Scores) error {
	s := &show{scores: scores, used: map[string]float64{}}
	if *wired {
		w, err := wire.New()
		if err != nil {
			return err
		}
		defer w.Close()
		s.wire, scores.Section = w, "fanout-wire"
	}
	chosen, err := s.parts().Choose(*parts)
	if err != nil {
		return err
	}
	if s.Pair, err = rig.StartPair(ctx, rig.TenResources+",pods"); err != nil {
		return err
	}
	defer s.Stop()
	paths, err := s.CreateConfigMaps(ctx, objectCount, *size)
	if err != nil {
		return err
	}
	s.writer = s.NewWriter(paths)
	return chosen.Play(ctx)
}

// load is the ordinary load of a server.
func (s *show) load(server rig.Server) swarm.Load {
	const target = rig.ConfigMaps + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600"
	return swarm.Load{
		Options: swarm.Options{Server: server, Targets: slices.Repeat([]string{target}, *watchers), Wire: s.wire},
		FromNow: true, Rate: *rate, Burst: 1, While: *window, Reach: *watchers, Write: s.writer.Run,
	}
}

// floorLoad is the ordinary load of the bare loop, which writes its events itself.
func (s *show) floorLoad(floor *floor, server rig.Server) swarm.Load {
	l := s.load(server)
	l.FromNow, l.Write = false, floor.run
	return l
}
