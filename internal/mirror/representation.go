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

// representation keeps the objects of a mirror as upstream shows them now: when there is reason to
// think that it shows them otherwise at the same resourceVersions, they are listed again and those
// that differ are replaced in place (design D2).
type representation struct {
	// Static after construction.
	prober   *probes.Prober
	resource *cache.Resource
	log      *zap.Logger
	asked    chan struct{} // holds one word that there is something to do

	doubts, settled atomic.Uint64

	mu    sync.Mutex
	pace  states.Pace // of suspicions
	later bool        // one is waiting for its turn
}

const (
	// minSuspicionInterval and maxSuspicionInterval are how long a state that was read again since a
	// watch ended early is not read again for that reason: a proxy between that cuts watches would
	// have every state of a custom resource listed all the time.
	minSuspicionInterval = 10 * time.Second
	maxSuspicionInterval = 10 * time.Minute
)

func newRepresentation(prober *probes.Prober, resource *cache.Resource, log *zap.Logger) *representation {
	return &representation{
		prober: prober, resource: resource, pace: states.Pace{First: minSuspicionInterval, Longest: maxSuspicionInterval},
		asked: make(chan struct{}, 1),
		log:   log.With(zap.Stringer("resource", resource.Info), zap.String("version", resource.Info.GVR.Version)),
	}
}

// suspect has the state read again. It is for hints that mean nothing as a rule: the state is
// served meanwhile.
func (r *representation) suspect() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// suspectAtPace is suspect for hints that may come in swarms. None is dropped: one that comes too
// soon waits.
func (r *representation) suspectAtPace() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch {
	case r.pace.Try(now):
		r.suspect()
	case !r.later:
		r.later = true
		time.AfterFunc(r.pace.Due().Sub(now), func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.later = false
			r.pace.Ask(time.Now())
			r.suspect()
		})
	}
}

// doubt has the state read again, and says that it must not be served until then.
func (r *representation) doubt() {
	r.doubts.Add(1)
	r.suspect()
}

// doubtful reports that the state must not be served.
func (r *representation) doubtful() bool { return r.settled.Load() != r.doubts.Load() }

// retryEvery is how long after a failure a state is requested again.
const retryEvery = time.Second

// run reads the state again whenever it is to, until ctx ends.
func (r *representation) run(ctx context.Context) {
	for {
		select {
		case <-r.asked:
		case <-ctx.Done():
			return
		}
		for !r.read(ctx) {
			select {
			case <-time.After(retryEvery):
			case <-ctx.Done():
				return
			}
		}
	}
}

// read reports whether the state is as upstream shows it. A mirror's first state may have been on
// its way when upstream changed, so it is waited for and read again, too.
func (r *representation) read(ctx context.Context) bool {
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
