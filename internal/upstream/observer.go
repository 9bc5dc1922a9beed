package upstream

import "time"

// Observer has functions that a Reflector calls, in the goroutine of Run or of one of its requests:
// they must return at once. nil functions are not called.
type Observer struct {
	// OnState: the Sink was given a complete state.
	OnState func()
	// OnOpen: a watch goes on where the Sink is. A watch-list is no such watch: OnState follows
	// it.
	OnOpen func()
	// OnEarlyEnd: upstream, or a proxy in front of it, ended a watch cleanly before its time.
	// Upstream does so when its watch cache begins again: at a restart, and when a definition has
	// changed, some time after it answers by the new one.
	OnEarlyEnd func()
	// OnFailure: Status.Err was set. A watch-list that upstream refuses is no failure yet, because a
	// LIST follows (W-191).
	OnFailure func(error)
	// OnFallback: a watch-list did not end its initial events, and a LIST takes its place.
	OnFallback func(error)
	// OnRelist: Relist was called.
	OnRelist func(reason string)
	// OnWait: when the next request upstream is sent at the latest.
	OnWait func(until time.Time)
}

// WithObserver sets the observer. It logs what an operator needs, because the Reflector logs at
// debug level alone.
func WithObserver(o Observer) Option {
	return func(r *Reflector) { r.observer = o.complete() }
}

// complete fills in what is left out.
func (o Observer) complete() Observer {
	for _, f := range []*func(){&o.OnState, &o.OnOpen, &o.OnEarlyEnd} {
		if *f == nil {
			*f = func() {}
		}
	}
	for _, f := range []*func(error){&o.OnFailure, &o.OnFallback} {
		if *f == nil {
			*f = func(error) {}
		}
	}
	if o.OnRelist == nil {
		o.OnRelist = func(string) {}
	}
	if o.OnWait == nil {
		o.OnWait = func(time.Time) {}
	}
	return o
}
