package upstream

import "time"

// Observer hears how a Reflector fares, from the goroutine of Run or one of its requests: its
// functions must return at once. nil functions are not called.
type Observer struct {
	// Completed: the Sink was given a complete state.
	Completed func()
	// Opened: a watch goes on where the Sink is. A watch-list is no such watch: Completed follows
	// it.
	Opened func()
	// Ended: upstream, or what stands before it, ended a watch cleanly before its time. Upstream
	// does so when its own view of the resource begins anew: at a restart, and when a definition
	// has changed, some time after it answers by the new one.
	Ended func()
	// Failed: what Status.Err says. A watch-list that upstream refuses is no failure yet, since a
	// LIST follows (W-191).
	Failed func(error)
	// FellBack: a watch-list did not end its initial events, and a LIST takes its place.
	FellBack func(error)
	// Relisting: Relist was called.
	Relisting func(reason string)
	// Waiting: when the next request upstream is sent at the latest.
	Waiting func(until time.Time)
}

// WithObserver reports what happens to o. Then o logs what is worth it, and the Reflector logs at
// debug level alone.
func WithObserver(o Observer) Option {
	return func(r *Reflector) { r.observer = o.complete() }
}

// complete fills in what is left out.
func (o Observer) complete() Observer {
	for _, f := range []*func(){&o.Completed, &o.Opened, &o.Ended} {
		if *f == nil {
			*f = func() {}
		}
	}
	for _, f := range []*func(error){&o.Failed, &o.FellBack} {
		if *f == nil {
			*f = func(error) {}
		}
	}
	if o.Relisting == nil {
		o.Relisting = func(string) {}
	}
	if o.Waiting == nil {
		o.Waiting = func(time.Time) {}
	}
	return o
}
