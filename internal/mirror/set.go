// Package mirror holds the resources that are mirrored: each with its reflector, cache, hub and
// proofs, and the set of them. The set decides which resources are mirrored, when a mirror begins,
// when it is given up and tried again, and when what it holds is doubted, compared or read again.
//
// Invariant: a mirror is in exactly one state (package states), and is answered from only while
// that state and its representation are as upstream's; in doubt Find returns nil, and requests pass
// through. A mirror never decides by itself that it has ended: the set removes it first, so that a
// request finds either a mirror that runs or none.
package mirror

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/backfill"
	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/fanout"
	"spillway/internal/mirror/states"
	"spillway/internal/object"
	"spillway/internal/source"
	"spillway/internal/upstream"
	"spillway/internal/upstream/discovery"
	"spillway/internal/watchdog"
)

// SetOptions say what is mirrored, and what of it is kept.
type SetOptions struct {
	Resources           []string      // resource[.version][.group]
	OnDemand            bool          // also any other that can be listed and watched, at its first request
	Strict              bool          // a named resource that cannot be mirrored fails Begin
	MaxOnDemand         int           // resources that are mirrored because a client requested them
	IdleTimeout         time.Duration // after which these are given up; 0: never
	CompareInterval     time.Duration // in which each mirror is compared with upstream; 0: never
	HistoryBytes        int64         // of each resource
	HistoryMinAge       time.Duration
	MaxBackfillWatches  int   // at a time; 0: none
	EncodingCacheBytes  int64 // of cached encodings, over all resources
	EncodedBytesAtLeast int64 // what is kept of these while memory is short
	FeedBytes           int64 // of frames, over all resources; 0: no limit
	FirstStates         int   // of resources on demand, on their way at a time; 0: no limit
	StripManagedFields  bool
	// IsClient says that the proxy's rights are a client's, as a sidecar's are: what they lack is no
	// fault, as long as something else does.
	IsClient bool
	// AsksAboutAll says that upstream reviews every client, so that none is served while it is
	// unreachable.
	AsksAboutAll bool
	Clock        *watchdog.Monitor // of the mirrors' loops; nil: nothing watches them
}

// Set is the resources that are mirrored, and those that will be when a client requests them. It is
// the server's catalog.
//
// Find is on the path of every request, so it reads an immutable map; what adds or removes a mirror
// replaces the map.
type Set struct {
	// Static after construction.
	o           SetOptions
	client      *upstream.Client
	limits      cache.HistoryLimits
	backfill    *backfill.WatchLimit // nil: none
	feedBytes   *fanout.ByteBudget   // of frames; nil: no limit
	lanes       *fanout.LaneLimiter
	firstStates chan struct{} // holds a word for each first state on demand that is on its way; nil: no limit
	release     *codec.SchemaVersion
	encodings   *object.EncodingCache
	log         *zap.Logger
	stateLog    *states.LogLimiter
	transitions *prometheus.CounterVec
	ctx         context.Context // of the mirrors

	// Static after construction; tests shorten them.
	firstRetryPause time.Duration
	endMarkWait     time.Duration
	historyPace     states.Pace // of each mirror

	named             atomic.Pointer[[]*object.Resource]
	running           atomic.Pointer[map[schema.GroupVersionResource]*mirror]
	missingHint       chan struct{} // holds one word that a missing resource may be there by now
	definitionsHidden atomic.Bool   // upstream does not let the proxy read definitions
	memoryStep        atomic.Int32  // the guard's memory.Step
	// Requests that passed through because no more resources may be mirrored, or memory was short.
	refusedForSlots  atomic.Uint64
	refusedForMemory atomic.Int64

	mu struct {
		sync.Mutex
		entries     map[schema.GroupVersionResource]entry
		definitions map[schema.GroupResource]definition
		// missing are the states of named resources that upstream has not served yet, by their names.
		missing map[string]*mirrorState
		// lookUps is when an unknown resource was last looked up. Clients make up names.
		lookUps map[schema.GroupVersionResource]time.Time
		// delegations is how often the server that answers for a version has changed.
		delegations map[schema.GroupVersion]int
		slotLog     states.Pace // of the log lines about refusedForSlots
	}
	active sync.WaitGroup // mirrors and look-ups
}

// entry is what is known of a resource. The zero entry is that of an unknown one, and is not kept.
type entry struct {
	offered *object.Resource // what it is, if it may be mirrored on demand; nil: it may not, or is unknown
	refused string           // why it is never mirrored; empty: it may be
	state   *mirrorState     // of its mirror, or of the one that it was to have; nil: none was begun
}

// updateLocked changes what is known of a resource.
func (s *Set) updateLocked(gvr schema.GroupVersionResource, change func(*entry)) {
	e := s.mu.entries[gvr]
	change(&e)
	if e == (entry{}) {
		delete(s.mu.entries, gvr)
		return
	}
	s.mu.entries[gvr] = e
}

// definition is what is known of the definition of a resource in all its versions.
type definition struct {
	epoch        string // as upstream names it; empty: the definition is gone
	known        bool   // upstream has sent the epoch
	settlesUntil time.Time
}

// ResourcesError says that resources which SetOptions name keep the proxy from starting.
type ResourcesError struct{ Err error }

func (e *ResourcesError) Error() string { return e.Err.Error() }
func (e *ResourcesError) Unwrap() error { return e.Err }

// NewSet knows of no resource and starts nothing; Begin does. ctx ends the mirrors; Wait waits for
// that.
func NewSet(ctx context.Context, client *upstream.Client, o SetOptions, log *zap.Logger) *Set {
	s := &Set{
		o: o, client: client, release: codec.NewSchemaVersion(), encodings: object.NewEncodingCache(o.EncodingCacheBytes),
		limits: cache.HistoryLimits{HistoryBytes: o.HistoryBytes, HistoryMinAge: o.HistoryMinAge},
		lanes:  fanout.NewLaneLimiter(runtime.GOMAXPROCS(0) / 2), // the other half is for hubs and writers
		log:    log, stateLog: states.NewLogLimiter(log), transitions: newTransitions(), ctx: ctx,
		firstRetryPause: minRetryPause, endMarkWait: endMarkWait,
		historyPace: states.Pace{First: minRevisionInterval, Longest: maxRevisionInterval},
		missingHint: make(chan struct{}, 1),
	}
	if o.FeedBytes > 0 {
		s.feedBytes = fanout.NewByteBudget(o.FeedBytes)
	}
	if o.FirstStates > 0 {
		s.firstStates = make(chan struct{}, o.FirstStates)
	}
	if o.MaxBackfillWatches > 0 {
		s.backfill = backfill.NewWatchLimit(o.MaxBackfillWatches)
	}
	s.named.Store(&[]*object.Resource{})
	s.running.Store(&map[schema.GroupVersionResource]*mirror{})
	s.mu.entries = map[schema.GroupVersionResource]entry{}
	s.mu.definitions = map[schema.GroupResource]definition{}
	s.mu.missing = map[string]*mirrorState{}
	s.mu.lookUps = map[schema.GroupVersionResource]time.Time{}
	s.mu.delegations = map[schema.GroupVersion]int{}
	s.mu.slotLog = states.Pace{First: minSlotLogInterval, Longest: maxSlotLogInterval}
	return s
}

// Begin finds out what there is to mirror, within the time that starting gives, and starts the
// named mirrors. It is called before a client requests a resource. After an error nothing has been
// started, and it may be called again.
func (s *Set) Begin(starting context.Context) error {
	version, err := s.client.Version(starting)
	if err != nil {
		return fmt.Errorf("finding out upstream's version: %w", err)
	}
	named, err := discovery.Resolve(starting, s.client, s.o.Resources)
	if err != nil {
		return fmt.Errorf("finding out what upstream serves: %w", err)
	}
	if err := s.checkNamed(named); err != nil {
		return &ResourcesError{err}
	}
	if s.o.OnDemand {
		if err := s.discover(starting); err != nil {
			return err
		}
	}
	s.release.SetUpstream(version.Minor)
	s.active.Go(func() { s.stateLog.Run(s.ctx) })
	if missing := s.mirrorResolved(named); missing > 0 {
		s.active.Go(s.findMissing)
	}
	s.active.Go(func() { s.checkHistories(historyCheckInterval) })
	s.active.Go(func() { s.watchSilence(silenceTimeout, silenceCheckInterval) })
	s.active.Go(s.logOutages)
	if s.o.CompareInterval > 0 {
		s.active.Go(func() { s.compareStates(s.o.CompareInterval) })
	}
	s.active.Go(func() { newEpochs(s, *version).run(s.ctx) })
	s.active.Go(s.followCapabilities)
	if s.o.IdleTimeout > 0 {
		s.active.Go(func() { s.dropIdle(s.o.IdleTimeout) })
	}
	s.followDefinitions()
	return nil
}

// checkNamed says why the named resources keep the proxy from starting.
func (s *Set) checkNamed(named []discovery.Resolution) error {
	if s.o.Strict {
		return discovery.JoinErrors(named)
	}
	return discovery.MisspelledError(named)
}

// discover notes which resources may be mirrored on demand, and which never.
func (s *Set) discover(ctx context.Context) error {
	offered, refused, err := discovery.Discover(ctx, s.client)
	if err != nil {
		return fmt.Errorf("finding out what upstream serves: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for gvr, info := range offered {
		s.updateLocked(gvr, func(e *entry) { e.offered = info })
	}
	for gvr, reason := range refused {
		s.updateLocked(gvr, func(e *entry) { e.refused = reason })
	}
	return nil
}

// start runs a mirror of the resource, or returns the one that runs; nil if none may run now.
func (s *Set) start(info *object.Resource) *mirror {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := *s.running.Load()
	if found := running[info.GVR]; found != nil {
		return found
	}
	if s.isOutdatedLocked(info) {
		s.updateLocked(info.GVR, func(e *entry) { e.offered = nil })
		return nil
	}
	isNamed := s.isNamed(info.GVR)
	if s.ctx.Err() != nil || !isNamed && !s.admitLocked(info, running) {
		return nil
	}
	info.Remember(s.encodings)
	if s.o.StripManagedFields {
		info.StripManagedFields()
	}
	state := s.mu.entries[info.GVR].state
	if state == nil {
		state = s.newState(info.String(), info.GVR.Version)
		s.updateLocked(info.GVR, func(e *entry) { e.state = state })
		s.log.Debug("mirroring", zap.Stringer("resource", info), zap.String("version", info.GVR.Version))
	}
	ctx, cancel := context.WithCancel(s.ctx)
	m := newMirror(s, info, state, cancel)
	running = maps.Clone(running)
	running[info.GVR] = m
	s.running.Store(&running)
	s.active.Go(func() {
		if !isNamed {
			s.awaitFirstStatePlace(ctx, m)
		}
		m.run(ctx)
	})
	return m
}

// removeLocked takes a mirror out of the catalog; false if it is not there any more.
func (s *Set) removeLocked(m *mirror) bool {
	gvr := m.resource.Info.GVR
	running := *s.running.Load()
	if running[gvr] != m {
		return false
	}
	running = maps.Clone(running)
	delete(running, gvr)
	s.running.Store(&running)
	return true
}

// detachLocked removes a mirror that is about to end, and notes why: a named resource is to be
// mirrored again, another one is forgotten.
func (s *Set) detachLocked(m *mirror, cause states.Cause) {
	gvr := m.resource.Info.GVR
	s.removeLocked(m)
	m.ended.Store(true)
	if s.isNamed(gvr) {
		m.state.retry.Reset()
		s.refuseLocked(gvr, m.state, cause)
		return
	}
	s.forgetLocked(gvr, m.state, cause)
}

// detachAndEndLocked ends a mirror for a cause.
func (s *Set) detachAndEndLocked(m *mirror, cause states.Cause) {
	s.detachLocked(m, cause)
	m.end()
}

// all are the mirrors that run, ordered by name.
func (s *Set) all() []*mirror {
	return slices.SortedFunc(maps.Values(*s.running.Load()), func(a, b *mirror) int {
		return cmp.Compare(a.resource.Info.String(), b.resource.Info.String())
	})
}

// pause waits for d, or reports false if the mirrors end first.
func (s *Set) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.ctx.Done():
		return false
	}
}

// Wait returns when every mirror has ended, after their context has.
func (s *Set) Wait() { s.active.Wait() }

var _ source.Catalog = (*Set)(nil)
