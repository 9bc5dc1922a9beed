package swarm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"spillway/bench/rig"
)

// Load is what a server is given to do: watches that are open while objects are written.
type Load struct {
	Options      // of the watches
	FromNow bool // they see what is written from now on: a resourceVersion is added to their targets

	Rate  float64 // writes per second
	Burst int     // of them at once
	While time.Duration
	Reach int // how many watches see each of them, of those that are listened to
	Write func(ctx context.Context, perSecond float64, burst int, while time.Duration) (int, error)
}

// Sample is what one measurement showed.
type Sample struct {
	CPU      time.Duration // of the server, for all of it, without what it uses anyway
	Delays   Delays        // of all deliveries that were listened to, from the beginning of the write
	Every    int           // each how many-th was
	Written  int
	Took     time.Duration // from the first write until the last delivery
	Complete bool          // each event reached each watch that it should
	Trouble  string        // why not
}

const (
	calm     = time.Second             // from the last watch's answer until anything is measured
	idle     = 1500 * time.Millisecond // without writes: what a server does then has nothing to do with them
	patience = 5 * time.Second         // without a delivery, until the others are given up
)

// Measure opens the watches, writes for a while and closes them.
func (l Load) Measure(ctx context.Context) (Sample, error) {
	s, err := l.Open(ctx)
	if err != nil {
		return Sample{}, fmt.Errorf("%s: %w", l.Server.Name, err)
	}
	defer s.Close()
	return l.Pulse(ctx, s)
}

// Open opens the watches, from now on.
func (l Load) Open(ctx context.Context) (*WatchSet, error) {
	o := l.Options
	if l.FromNow {
		o.Targets = nil
		newest := map[string]uint64{}
		for _, target := range l.Targets {
			collection, _, _ := strings.Cut(target, "?")
			if newest[collection] == 0 {
				var err error
				if newest[collection], err = l.Server.Newest(ctx, collection); err != nil {
					return nil, err
				}
			}
			o.Targets = append(o.Targets, fmt.Sprintf("%s&resourceVersion=%d", target, newest[collection]))
		}
	}
	return Start(ctx, o)
}

// Pulse writes for a while to watches that are open. What the server uses while nothing is written
// is measured before, and taken off.
func (l Load) Pulse(ctx context.Context, s *WatchSet) (Sample, error) {
	time.Sleep(calm)
	before, err := l.Server.CPU()
	if err != nil {
		return Sample{}, err
	}
	began := time.Now()
	time.Sleep(idle)
	s.Reset()
	rested, err := l.Server.CPU()
	if err != nil {
		return Sample{}, err
	}
	atRest := float64(rested-before) / float64(time.Since(began))
	began = time.Now()
	n, err := l.Write(ctx, l.Rate, l.Burst, l.While)
	if err != nil {
		return Sample{}, err
	}
	r := Sample{Written: n, Every: max(l.Every, 1), Complete: s.Await(ctx, int64(n*l.Reach), patience),
		Took: time.Since(began)}
	after, err := l.Server.CPU()
	if err != nil {
		return Sample{}, err
	}
	r.CPU = after - rested - time.Duration(atRest*float64(r.Took))
	r.Delays = s.Delays()
	if !r.Complete {
		lost, how := s.Lost()
		r.Trouble = fmt.Sprintf("%d of %d deliveries, %d watches lost (%v)", len(r.Delays), n*l.Reach, lost, how)
	}
	rig.Say("%s: %.2f µs per delivery, p50 %s, p99 %s (%d writes, %d deliveries in %s, %.2f cores, %.3f at rest) %s",
		l.Server.Name, r.PerDelivery(),
		r.Delays.At(50), r.Delays.At(99), n, len(r.Delays)*r.Every, r.Took.Round(time.Millisecond), r.Cores(), atRest,
		r.Trouble)
	return r, ctx.Err()
}

// PerDelivery is the CPU per delivery, in microseconds.
func (s Sample) PerDelivery() float64 { return micros(s.CPU) / float64(len(s.Delays)*s.Every) }

// PerWrite is the CPU per event written, in microseconds.
func (s Sample) PerWrite() float64 { return micros(s.CPU) / float64(s.Written) }

// PerSecond is how many deliveries there were in a second.
func (s Sample) PerSecond() float64 { return float64(len(s.Delays)*s.Every) / s.Took.Seconds() }

// Cores is how many processors the server used.
func (s Sample) Cores() float64 { return s.CPU.Seconds() / s.Took.Seconds() }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Samples are those of one side, a round each.
type Samples []Sample

// Of picks one figure of each.
func (s Samples) Of(figure func(Sample) float64) []float64 {
	var all []float64
	for _, one := range s {
		all = append(all, figure(one))
	}
	return all
}

// Delay is a percentile of each, in milliseconds.
func (s Samples) Delay(percent int) []float64 {
	return s.Of(func(one Sample) float64 { return micros(one.Delays.At(percent)) / 1e3 })
}

// Trouble is what went wrong in any round, "" if nothing.
func (s Samples) Trouble() string {
	for _, one := range s {
		if !one.Complete {
			return one.Trouble
		}
	}
	return ""
}

// MeasureAll measures loads in turn, each of them in so many rounds.
func MeasureAll(ctx context.Context, rounds int, loads ...Load) ([]Samples, error) {
	all := make([]Samples, len(loads))
	for range rounds {
		for i, l := range loads {
			one, err := l.Measure(ctx)
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], one)
		}
	}
	return all, nil
}
