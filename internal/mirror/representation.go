package mirror

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"spillway/internal/cache"
	"spillway/internal/mirror/states"
	"spillway/internal/upstream/probes"
)

const (
	// minSuspicionInterval and maxSuspicionInterval are the intervals between two readings of a state
	// because watches ended early: a proxy that cuts watches would otherwise have every state of a
	// custom resource listed all the time.
	minSuspicionInterval = 10 * time.Second
	maxSuspicionInterval = 10 * time.Minute
	// rereadRetryInterval is how long after a failure a state is requested again.
	rereadRetryInterval = time.Second
)

// representation keeps the objects of a mirror as upstream shows them now. When upstream may show
// them differently at the same resourceVersions, they are listed again, and those that differ are
// replaced in place (design D2).
type representation struct {
	// Static after construction.
	prober   *probes.Prober
	resource *cache.Resource
	log      *zap.Logger
	wake     chan struct{} // holds one word that the state is to be read again

	doubts, settled atomic.Uint64 // the state is doubtful while they differ

	mu        sync.Mutex
	pace      states.Pace // of suspectAtPace
	isPlanned bool        // a suspicion waits until it is due
}

func newRepresentation(prober *probes.Prober, resource *cache.Resource, log *zap.Logger) *representation {
	return &representation{
		prober: prober, resource: resource, pace: states.Pace{First: minSuspicionInterval, Longest: maxSuspicionInterval},
		wake: make(chan struct{}, 1),
		log:  log.With(zap.Stringer("resource", resource.Info), zap.String("version", resource.Info.GVR.Version)),
	}
}

// suspect has the state read again. It is for hints that mostly mean nothing: the state is served
// meanwhile.
func (r *representation) suspect() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// suspectAtPace is suspect for hints that may come in swarms. A hint that comes too soon waits.
func (r *representation) suspectAtPace() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch {
	case r.pace.Try(now):
		r.suspect()
	case !r.isPlanned:
		r.isPlanned = true
		time.AfterFunc(r.pace.Due().Sub(now), func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.isPlanned = false
			r.pace.Note(time.Now())
			r.suspect()
		})
	}
}

// doubt has the state read again, and says that it must not be served until then.
func (r *representation) doubt() {
	r.doubts.Add(1)
	r.suspect()
}

// isDoubtful reports that the state must not be served.
func (r *representation) isDoubtful() bool { return r.settled.Load() != r.doubts.Load() }

// run reads the state again after each hint, until ctx ends.
func (r *representation) run(ctx context.Context) {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		for !r.reread(ctx) {
			select {
			case <-time.After(rereadRetryInterval):
			case <-ctx.Done():
				return
			}
		}
	}
}

// reread reports whether the state is as upstream shows it. A mirror's first state may have been on
// its way when upstream changed, so it is waited for and read again, too.
func (r *representation) reread(ctx context.Context) bool {
	doubts := r.doubts.Load()
	if err := r.resource.AwaitRV(ctx, 0); err != nil {
		return false
	}
	objects, err := r.prober.ListObjects(ctx, r.resource.CompleteRV())
	if err != nil {
		r.log.Debug("upstream did not show its state", zap.Error(err))
		return false
	}
	if n := r.resource.ReplaceRepresentation(objects); n > 0 {
		r.log.Info("upstream shows objects otherwise than before", zap.Int("objects", n))
	}
	r.settled.Store(doubts)
	return true
}
