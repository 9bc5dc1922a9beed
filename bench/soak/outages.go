package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/plot"
	"spillway/test/framework/controlplane"
)

const (
	killed = "kube-apiserver killed" // and started again
	frozen = "kube-apiserver frozen"

	restartEvery = 10 * time.Minute // and at least two in each run
	freezeFor    = 20 * time.Second
	settling     = 15 * time.Second // for everything to be as before, once upstream is back
)

// outage is a time without upstream.
type outage struct {
	what         string
	began, ended time.Time // ended: kube-apiserver was ready, or thawed; zero: not yet
}

// plan is when to do what, from the beginning of a run.
type plan struct {
	what  string
	after time.Duration
	takes time.Duration // of a freeze
}

// outages is what is done to upstream.
type outages struct {
	settle time.Duration

	mu struct {
		sync.Mutex
		all []outage
	}
}

// planFor is a restart every ten minutes, or as often as a shorter run needs it for two, and a
// freeze between each second two of them.
func planFor(duration time.Duration) []plan {
	every := min(restartEvery, duration/3)
	var plans []plan
	for at := every; at+every/2 < duration; at += every {
		plans = append(plans, plan{what: killed, after: at})
	}
	for at := every * 3 / 2; at+every/2 < duration; at += 2 * every {
		plans = append(plans, plan{what: frozen, after: at, takes: min(freezeFor, every/4)})
	}
	slices.SortFunc(plans, func(a, b plan) int { return int(a.after - b.after) })
	return plans
}

// newOutages are those of a run: in a short one things must settle sooner.
func newOutages(duration time.Duration) *outages {
	return &outages{settle: min(settling, duration/12)}
}

// play does what is planned. An outage that has begun is ended in any case.
func (o *outages) play(ctx context.Context, cp *controlplane.ControlPlane, plans []plan) error {
	began := time.Now()
	for _, p := range plans {
		if rig.Sleep(ctx, p.after-time.Since(began)) != nil {
			return nil // the run is over
		}
		rig.Say("%s", p.what)
		o.begin(p.what)
		if err := p.play(ctx, cp); err != nil {
			return err
		}
		o.end()
		rig.Say("upstream is back")
	}
	return nil
}

func (p plan) play(ctx context.Context, cp *controlplane.ControlPlane) error {
	if p.what == killed {
		cp.APIServer().Kill()
		return cp.StartAPIServer(context.WithoutCancel(ctx))
	}
	if err := cp.FreezeAPIServer(); err != nil {
		return err
	}
	_ = rig.Sleep(ctx, p.takes) // thawed all the same
	return cp.ThawAPIServer()
}

func (o *outages) begin(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.all = append(o.mu.all, outage{what: what, began: time.Now()})
}

func (o *outages) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.all[len(o.mu.all)-1].ended = time.Now()
}

func (o *outages) list() []outage {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.mu.all)
}

// excuse reports that upstream was unreachable, or had just become reachable again, some time
// between two moments.
func (o *outages) excuse(from, to time.Time) bool {
	return slices.ContainsFunc(o.list(), func(one outage) bool {
		return to.After(one.began) && (one.ended.IsZero() || from.Before(one.ended.Add(o.settle)))
	})
}

// covers reports that upstream was away from one moment to another: all of it lies in one outage,
// what was under way when it began and what it took to settle included.
func (o *outages) covers(from, to time.Time) bool {
	const underWay = time.Second
	return slices.ContainsFunc(o.list(), func(one outage) bool {
		return from.After(one.began.Add(-underWay)) && (one.ended.IsZero() || to.Before(one.ended.Add(o.settle)))
	})
}

// spans are the outages in minutes after a moment.
func (o *outages) spans(began time.Time) []plot.Span {
	var spans []plot.Span
	for _, one := range o.list() {
		spans = append(spans, plot.Span{Name: one.what, From: one.began.Sub(began).Minutes(),
			To: one.ended.Sub(began).Minutes()})
	}
	return spans
}
