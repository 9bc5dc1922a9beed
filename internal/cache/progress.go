package cache

import (
	"context"
	"errors"
)

// ErrNotReached says that upstream has not told the cache of a resourceVersion yet.
var ErrNotReached = errors.New("resourceVersion not reached")

// WaitThrough blocks until the cache is complete through rv, and returns ctx's error if that comes first.
func (r *Resource) WaitThrough(ctx context.Context, rv uint64) error {
	for {
		changed := r.Changed()
		if r.Ready() && r.Through() >= rv {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
