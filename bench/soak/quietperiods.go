package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"spillway/bench/rig"
)

// quietPeriods are the moments without visitors, now and then: what the proxy holds then is for the
// clients that stay, and not for clients that happen to be there, of which there are more the
// slower the machine is. A visit is made under a read lock.
type quietPeriods struct {
	visiting sync.RWMutex
	coming   atomic.Bool // churn clients are to leave
}

const (
	lullsMost  = 30               // in a run
	lullsApart = 40 * time.Second // at least
)

// play keeps visitors away every now and then until ctx ends, and looks each time.
func (l *quietPeriods) play(ctx context.Context, look func(ctx context.Context) error) error {
	for rig.Sleep(ctx, max(*duration/lullsMost, lullsApart)-quiet) == nil {
		if err := l.rest(ctx, look); err != nil {
			return err
		}
	}
	return nil
}

// rest is one lull.
func (l *quietPeriods) rest(ctx context.Context, look func(ctx context.Context) error) error {
	l.coming.Store(true)
	defer l.coming.Store(false)
	l.visiting.Lock()
	defer l.visiting.Unlock()
	if rig.Sleep(ctx, quiet) != nil {
		return nil // it is over
	}
	return look(ctx)
}
