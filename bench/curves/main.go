// Command curves measures how the costs of Spillway and kube-apiserver grow: with the number of
// watchers, with the rate of events and with the number of objects. Each curve becomes a drawing,
// curve-<name>.svg.
package main

import (
	"context"
	"flag"
	"time"

	"spillway/bench/rig"
)

var (
	rounds = flag.Int("rounds", 3, "how often each point is measured; the median counts")
	window = flag.Duration("window", 4*time.Second, "how long events are written in each measurement")
	into   = flag.String("into", ".", "the folder to draw into")
	most   = flag.Int("objects", 100_000, "the greatest number of objects that are listed")
	parts  = flag.String("parts", "", "measure only these: "+(&show{}).parts().Names())
)

func main() { rig.Measure("curves", run) }

// show is one run.
type show struct {
	*rig.Pair
	scores *rig.Scores
	paths  []string // of what is written to
}

func (s *show) parts() rig.Parts {
	return rig.Parts{{Name: "watchers", Play: s.alone(s.byWatchers)}, {Name: "rate", Play: s.alone(s.byRate)},
		{Name: "objects", Play: s.alone(s.byObjects)}}
}

func run(ctx context.Context, scores *rig.Scores) error {
	s := &show{scores: scores}
	chosen, err := s.parts().Choose(*parts)
	if err != nil {
		return err
	}
	return chosen.Play(ctx)
}

// alone plays a part with servers that have done nothing else.
func (s *show) alone(play func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		var err error
		if s.Pair, err = rig.StartPair(ctx, "configmaps"); err != nil {
			return err
		}
		defer s.Stop()
		if s.paths, err = s.CreateConfigMaps(ctx, 64, 2<<10); err != nil {
			return err
		}
		return play(ctx)
	}
}

// sides are what each curve is drawn for.
func (s *show) sides() []rig.Server {
	apiserver, spillway := s.APIServer, s.Spillway
	apiserver.Name, spillway.Name = apiserver.Name+", TLS", spillway.Name+", TLS"
	return []rig.Server{apiserver, spillway, s.Plain()}
}
