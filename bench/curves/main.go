// Command curves measures how the costs of Spillway and kube-apiserver grow: with the number of watchers, with the rate of events and with
// the number of objects. Each curve becomes a drawing, curve-<name>.svg.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"spillway/bench/rig"
	"spillway/bench/rig/swarm"
)

var (
	rounds = flag.Int("rounds", 3, "how often each point is measured; the median counts")
	window = flag.Duration("window", 4*time.Second, "how long events are written in each measurement")
	into   = flag.String("into", ".", "the folder to draw into")
	pods   = flag.Int("pods", 20000, "the greatest number of pods that are listed")
	parts  = flag.String("parts", "", "measure only these: "+(&show{}).parts().Names())
)

func main() { rig.Measure("curves", run) }

// show is one run.
type show struct {
	*rig.Pair
	scores *rig.Scores
	writer *rig.Writer
}

func (s *show) parts() rig.Parts {
	return rig.Parts{{Name: "watchers", Play: s.byWatchers}, {Name: "rate", Play: s.byRate}, {Name: "objects", Play: s.byObjects}}
}

func run(ctx context.Context, scores *rig.Scores) error {
	s := &show{scores: scores}
	chosen, err := s.parts().Choose(*parts)
	if err != nil {
		return err
	}
	if s.Pair, err = rig.StartPair(ctx, "configmaps,pods"); err != nil {
		return err
	}
	defer s.Stop()
	paths, err := s.CreateConfigMaps(ctx, 64, 2<<10)
	if err != nil {
		return err
	}
	s.writer = s.NewWriter(paths)
	return chosen.Play(ctx)
}

// sides are what each curve is drawn for.
func (s *show) sides() []rig.Server {
	apiserver, spillway := s.APIServer, s.Spillway
	apiserver.Name, spillway.Name = apiserver.Name+", TLS", spillway.Name+", TLS"
	return []rig.Server{apiserver, spillway, s.Plain()}
}

func (s *show) byWatchers(ctx context.Context) error {
	const spare = 500   // file descriptors that a process has open anyway
	const perSecond = 4 // few, so that each event is sent by itself and kube-apiserver is measured, not flooded
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	most := int(min(files.Max, 100_000)) - spare
	var counts []int
	for _, n := range []int{300, 1000, 3000, 10000, 30000} {
		counts = append(counts, min(n, most))
	}
	return s.draw(ctx, chart{
		name: "watchers", title: fmt.Sprintf("Cost of a delivery, %d events per second", perSecond), x: "watchers", y: "µs of server CPU per delivery",
	}, slices.Compact(counts), func(ctx context.Context, server rig.Server, n int) (float64, string, error) {
		return s.delivery(ctx, server, n, perSecond)
	})
}

func (s *show) byRate(ctx context.Context) error {
	const watchers = 500
	return s.draw(ctx, chart{
		name: "rate", title: fmt.Sprintf("Cost of a delivery, %d watchers", watchers), x: "events per second", y: "µs of server CPU per delivery",
	}, []int{5, 10, 20, 50, 100, 200}, func(ctx context.Context, server rig.Server, n int) (float64, string, error) {
		return s.delivery(ctx, server, watchers, float64(n))
	})
}

// delivery measures one point: µs per delivery, and what was wrong with it.
func (s *show) delivery(ctx context.Context, server rig.Server, watchers int, rate float64) (float64, string, error) {
	const target = rig.ConfigMaps + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600"
	one, err := swarm.Load{
		Options:    swarm.Options{Server: server, Targets: slices.Repeat([]string{target}, watchers)},
		Collection: rig.ConfigMaps, Rate: rate, Burst: 1, While: *window, Reach: watchers, Write: s.writer.Run,
	}.Measure(ctx)
	return one.PerDelivery(), one.Trouble, err
}

func (s *show) byObjects(ctx context.Context) error {
	var counts []int
	for n := *pods; n >= 100; n /= 3 {
		counts = append(counts, n)
	}
	slices.Reverse(counts)
	made := 0
	return s.draw(ctx, chart{
		name: "objects", title: "Cost of a LIST at resourceVersion 0, JSON", x: "pods of 9 kB", y: "ms of server CPU per LIST",
	}, counts, func(ctx context.Context, server rig.Server, n int) (float64, string, error) {
		if made < n {
			if err := s.CreatePods(ctx, made, n, 200); err != nil {
				return 0, "", err
			}
			made = n
			time.Sleep(time.Second) // until both have them
		}
		cost, err := listCost(ctx, server)
		return cost, "", err
	})
}

// listCost is what a server needs for a LIST of all pods, in milliseconds of CPU.
func listCost(ctx context.Context, server rig.Server) (float64, error) {
	const lists = 5
	client := rig.NewHTTPClient()
	if server.Token != "" {
		client = rig.NewTLSClient(server.Token)
	}
	defer client.CloseIdleConnections()
	before, err := server.CPU()
	if err != nil {
		return 0, err
	}
	for range lists {
		if _, err := rig.GetAll(ctx, client, server.URL+rig.AllPods+"?resourceVersion=0"); err != nil {
			return 0, err
		}
	}
	after, err := server.CPU()
	return (after - before).Seconds() * 1e3 / lists, err
}

// draw measures each point on each side, in turn, and draws the medians. A side ends at the first point that it does not bear.
func (s *show) draw(ctx context.Context, c chart, at []int, measure func(ctx context.Context, server rig.Server, n int) (float64, string, error)) error {
	sides := s.sides()
	c.curves = make([]curve, len(sides))
	ended := make([]bool, len(sides))
	for _, n := range at {
		values := make([][]float64, len(sides))
		for range *rounds {
			for i, server := range sides {
				if ended[i] {
					continue
				}
				value, trouble, err := measure(ctx, server, n)
				if err != nil {
					return err
				}
				if trouble != "" {
					s.scores.Note(fmt.Sprintf("%s: %s ends below %d %s", c.name, server.Name, n, c.x), "%s", trouble)
					ended[i] = true
					continue
				}
				values[i] = append(values[i], value)
			}
		}
		for i := range sides {
			if !ended[i] {
				c.curves[i].name = sides[i].Name
				c.curves[i].points = append(c.curves[i].points, point{float64(n), rig.Median(values[i])})
			}
		}
		s.note(c, n, values)
	}
	file := "curve-" + c.name + ".svg"
	s.scores.Picture(c.title, file)
	return os.WriteFile(filepath.Join(*into, file), []byte(c.svg()), 0o644)
}

// note adds a point of all curves to the table.
func (s *show) note(c chart, n int, values [][]float64) {
	unit := rig.Micros
	if c.name == "objects" {
		unit = rig.Millis
	}
	what := fmt.Sprintf("%s, TLS: %d %s", c.y, n, c.x)
	if len(values[0]) == 0 { // kube-apiserver's curve has ended
		s.scores.Figure(what, "", unit, values[1], nil, rig.NoLimit)
	} else {
		s.scores.Ratio(what, unit, values[1], values[0], rig.NoLimit)
	}
	s.scores.Figure(fmt.Sprintf("%s, plain: %d %s", c.y, n, c.x), "", unit, values[2], nil, rig.NoLimit)
}
