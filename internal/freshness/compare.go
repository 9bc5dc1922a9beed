package freshness

import (
	"context"
	"errors"
	"time"

	"spillway/internal/cache"
)

// errDiffers says that the mirror did not get to the state that upstream holds.
var errDiffers = errors.New("the cache differs from upstream's state")

// comparisonTimeout is how long the mirror's own stream may take to get to the state that it is
// compared with.
const comparisonTimeout = 500 * time.Millisecond

// compareState accepts the present content as upstream's state, if it is. That two states are equal
// does not say that nothing happened between them, so history does not move: it is the content
// alone that is proven.
func (p *Prover) compareState(ctx context.Context) error {
	generation, promised := p.resource.Generation(), p.resource.PromisedRV()
	rv, versions, err := p.upstream.State(ctx)
	if err != nil {
		return err
	}
	if rv < promised {
		return p.noteUpstreamRV(rv, promised, generation)
	}
	s, err := p.matchVersions(ctx, generation, rv, versions)
	if err == nil {
		p.resource.NoteUpstreamRV(rv, generation)
		p.satisfyWaiters(s)
	}
	return err
}

// matchVersions waits until the mirror holds upstream's state at rv, or is past it.
func (p *Prover) matchVersions(ctx context.Context, generation, rv uint64, versions map[string]uint64) (*cache.Snapshot,
	error) {
	ctx, cancel := context.WithTimeoutCause(ctx, comparisonTimeout, errDiffers)
	defer cancel()
	for {
		changed := p.resource.Changed()
		s := p.resource.Snapshot()
		switch {
		case s == nil || s.Generation() != generation:
			return nil, errDiffers
		case s.RV >= rv:
			return s, nil
		case s.HasVersions(versions):
			return s.WithRV(rv), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
