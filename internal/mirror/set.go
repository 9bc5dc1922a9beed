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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	OnDemand            bool          // whatever can be listed and watched, too, at its first request
	Strict              bool          // a named resource that cannot be mirrored fails Begin
	MaxOnDemand         int           // resources that are mirrored because a client requested them
	IdleTimeout         time.Duration // after which these are given up; 0: never
	CompareInterval     time.Duration // in which each mirror is compared with upstream; 0: never
	HistoryBytes        int64         // of each resource
	HistoryMinAge       time.Duration
	MaxBackfillWatches  int   // at a time; 0: none
	EncodingCacheBytes  int64 // of what is made of objects, over all resources
	EncodedBytesAtLeast int64 // what is kept of these while memory is short
	FeedBytes           int64 // of frames, over all resources; 0: no limit
	FirstStates         int   // of resources on demand, that are on their way at a time; 0: any number
	StripManagedFields  bool
	// AsksAboutAll says that upstream reviews every client, so that none is served while it is away.
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
	o         SetOptions
	client    *upstream.Client
	limits    cache.HistoryLimits
	backfill  *backfill.WatchLimit // nil: none
	feedBytes *fanout.ByteBudget   // of frames; nil: no limit
	lanes     *fanout.LaneLimiter
	first     chan struct{} // a place for each first state that may be on its way on demand; nil: any number may
	release   *codec.SchemaVersion
	memo      *object.EncodingCache // of what is made of objects, whichever resource they are of
	log       *zap.Logger
	ctx       context.Context // of the mirrors

	lines       *states.LogLimiter
	transitions *prometheus.CounterVec
	retryFirst  time.Duration
	endMarkWait time.Duration
	questions   states.Pace // of each mirror: how far upstream is

	named   atomic.Pointer[[]*object.Resource]
	running atomic.Pointer[map[schema.GroupVersionResource]*mirror]
	sought  chan struct{} // holds one word that what is missing may be there by now
	slots   slotRejections
	blind   atomic.Bool  // upstream does not let us see definitions
	step    atomic.Int32 // the memory guard's, a memory.Step
	turned  atomic.Int64 // requests that passed through for that reason

	mu struct {
		sync.Mutex
		entries     map[schema.GroupVersionResource]entry
		definitions map[schema.GroupResource]definition
		// missing are those of named resources that upstream has not served yet, by their names.
		missing map[string]*mirrorState
		// lookUps is when upstream was last asked about what is not known. Clients make up names.
		lookUps map[schema.GroupVersionResource]time.Time
		// delegations is how often it was heard that another server answers, or another again.
		delegations map[schema.GroupVersion]int
	}
	active sync.WaitGroup // mirrors and look-ups
}

// entry is what is known of a resource. The zero entry is that of an unknown one, and is not kept.
type entry struct {
	offered *object.Resource // what it is, if it may be mirrored on demand; nil: it may not, or is unknown
	refused string           // why it is never mirrored; empty: it may be
	state   *mirrorState     // of its mirror, or of the one that it was to have; nil: none was begun
}

// definition is what was heard of the definition of a resource in all its versions.
type definition struct {
	epoch        string // as upstream told of it; empty: it is gone
	heard        bool   // upstream has told of it
	settlesUntil time.Time
}

// update changes what is known of a resource. Callers hold mu.
func (s *Set) update(gvr schema.GroupVersionResource, change func(*entry)) {
	e := s.mu.entries[gvr]
	change(&e)
	if e == (entry{}) {
		delete(s.mu.entries, gvr)
		return
	}
	s.mu.entries[gvr] = e
}

// ResourcesError is what upstream says of the resources that SetOptions name.
type ResourcesError struct{ Err error }

func (e *ResourcesError) Error() string { return e.Err.Error() }
func (e *ResourcesError) Unwrap() error { return e.Err }

// NewSet knows of no resource and starts nothing; Begin does. ctx ends the mirrors; Wait waits for
// that.
func NewSet(ctx context.Context, client *upstream.Client, o SetOptions, log *zap.Logger) *Set {
	m := &Set{
		o: o, client: client, release: codec.NewSchemaVersion(), memo: object.NewEncodingCache(o.EncodingCacheBytes),
		log: log, ctx: ctx,
		lines: states.NewLog(log, states.LogPeriod), transitions: newTransitions(), retryFirst: minRetryInterval,
		endMarkWait: endMarkWait,
		slots:       slotRejections{said: states.Pace{First: time.Minute, Longest: 10 * time.Minute}},
		questions:   states.Pace{First: minQuestionInterval, Longest: maxQuestionInterval},
		sought:      make(chan struct{}, 1),
		limits:      cache.HistoryLimits{HistoryBytes: o.HistoryBytes, HistoryMinAge: o.HistoryMinAge},
	}
	m.lanes = fanout.NewLaneLimiter(runtime.GOMAXPROCS(0) / 2) // the other half is for hubs and writers
	if o.FeedBytes > 0 {
		m.feedBytes = fanout.NewByteBudget(o.FeedBytes)
	}
	if o.FirstStates > 0 {
		m.first = make(chan struct{}, o.FirstStates)
	}
	if o.MaxBackfillWatches > 0 {
		m.backfill = backfill.NewWatchLimit(o.MaxBackfillWatches)
	}
	m.named.Store(&[]*object.Resource{})
	m.running.Store(&map[schema.GroupVersionResource]*mirror{})
	m.mu.entries = map[schema.GroupVersionResource]entry{}
	m.mu.definitions = map[schema.GroupResource]definition{}
	m.mu.missing = map[string]*mirrorState{}
	m.mu.lookUps = map[schema.GroupVersionResource]time.Time{}
	m.mu.delegations = map[schema.GroupVersion]int{}
	return m
}

// Begin finds out what there is to mirror, which starting bounds, and starts the named mirrors. It
// is called before a client requests a resource. After an error nothing has been started, and it
// may be called again.
func (s *Set) Begin(starting context.Context) error {
	version, err := s.client.Version(starting)
	if err != nil {
		return fmt.Errorf("finding out upstream's version: %w", err)
	}
	found, err := discovery.Resolve(starting, s.client, s.o.Resources)
	if err == nil && s.o.Strict {
		err = discovery.UnresolvedError(found)
	}
	if err != nil {
		return &ResourcesError{err}
	}
	if s.o.OnDemand {
		offered, refused, err := discovery.Discover(starting, s.client)
		if err != nil {
			return fmt.Errorf("finding out what upstream serves: %w", err)
		}
		s.mu.Lock()
		for gvr, info := range offered {
			s.update(gvr, func(e *entry) { e.offered = info })
		}
		for gvr, reason := range refused {
			s.update(gvr, func(e *entry) { e.refused = reason })
		}
		s.mu.Unlock()
	}
	s.release.Upstream(version.Minor)
	s.active.Go(func() { s.lines.Run(s.ctx) })
	if missing := s.adopt(found); missing > 0 {
		s.active.Go(s.seek)
	}
	s.active.Go(func() { s.checkHistories(historyCheck) })
	s.active.Go(func() { s.watchSilence(silenceTimeout, watchdogTick) })
	s.active.Go(s.logOutages)
	if s.o.CompareInterval > 0 {
		s.active.Go(func() { s.compareStates(s.o.CompareInterval) })
	}
	s.active.Go(func() { newEpochs(s, *version).run(s.ctx) })
	s.active.Go(s.followAbilities)
	if s.o.IdleTimeout > 0 {
		s.active.Go(func() { s.dropIdle(s.o.IdleTimeout) })
	}
	s.followDefinitions()
	return nil
}

// start runs a mirror of the resource, or returns the one that runs; nil if there are too many.
func (s *Set) start(info *object.Resource) *mirror {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := *s.running.Load()
	if found := running[info.GVR]; found != nil {
		return found
	}
	if s.outdated(info) {
		s.update(info.GVR, func(e *entry) { e.offered = nil })
		return nil
	}
	if s.ctx.Err() != nil || !s.isNamed(info.GVR) && (s.wantsSlot(info, running) || s.turnAway()) {
		return nil
	}
	info.Remember(s.memo)
	if s.o.StripManagedFields {
		info.StripManagedFields()
	}
	state := s.mu.entries[info.GVR].state
	if state == nil {
		state = s.newState(info.String(), info.GVR.Version)
		s.update(info.GVR, func(e *entry) { e.state = state })
		s.log.Debug("mirroring", zap.Stringer("resource", info), zap.String("version", info.GVR.Version))
	}
	started := newMirror(s, info, state)
	ctx, cancel := context.WithCancel(s.ctx)
	started.cancel = cancel
	running = maps.Clone(running)
	running[info.GVR] = started
	s.running.Store(&running)
	s.active.Go(func() {
		if !s.isNamed(info.GVR) {
			s.queue(ctx, started)
		}
		started.run(ctx)
	})
	return started
}

// lose ends a mirror that upstream does not serve at present, or not to the proxy: its requests
// pass through, and its watches end so that clients start again. It is tried again after a pause: a
// named resource by itself, others when a client requests them.
func (s *Set) lose(lost *mirror, cause error) {
	info := lost.resource.Info
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.remove(lost) {
		return
	}
	offered := info
	if !info.Builtin || apierrors.IsNotFound(cause) {
		offered = nil // it may be another one by then
	}
	s.update(info.GVR, func(e *entry) { e.offered = offered })
	lost.end()
	why := causeOf(cause)
	if apierrors.IsForbidden(cause) {
		why.Text += missingRole(info.GVR.GroupResource())
	}
	s.refuse(info.GVR, lost.state, why)
}

// remove takes a mirror out of the catalog; false if it is not there any more. Callers hold mu.
func (s *Set) remove(m *mirror) bool {
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

// all are the mirrors that run, ordered by name.
func (s *Set) all() []*mirror {
	return slices.SortedFunc(maps.Values(*s.running.Load()), func(a, b *mirror) int {
		return compareNames(a.resource.Info, b.resource.Info)
	})
}

func compareNames(a, b *object.Resource) int {
	switch {
	case a.String() < b.String():
		return -1
	case a.String() > b.String():
		return 1
	}
	return 0
}

// Wait returns when every mirror has ended, after their context has.
func (s *Set) Wait() { s.active.Wait() }

var _ source.Catalog = (*Set)(nil)
