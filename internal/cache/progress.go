package cache

import (
	"context"
	"errors"
)

// ErrNotReached says that upstream has not told the cache of a resourceVersion yet.
var ErrNotReached = errors.New("resourceVersion not reached")

// WaitThrough blocks until the cache is complete through rv, and returns ctx's error if that comes
// first.
func (r *Resource) WaitThrough(ctx context.Context, rv uint64) error {
	_, err := r.StateThrough(ctx, rv)
	return err
}

// StateThrough is the first state that is complete through rv, or ctx's error if that comes first.
func (r *Resource) StateThrough(ctx context.Context, rv uint64) (*Snapshot, error) {
	for {
		changed := r.Changed()
		if s := r.Snapshot(); s != nil && s.RV >= rv {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
