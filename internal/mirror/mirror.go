package mirror

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/backfill"
	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/fanout"
	"spillway/internal/freshness"
	"spillway/internal/mirror/states"
	"spillway/internal/object"
	"spillway/internal/source"
	"spillway/internal/upstream"
	"spillway/internal/upstream/capabilities"
	"spillway/internal/upstream/probes"
	"spillway/internal/watchdog"
)

const (
	// endMarkWait is how long a watch-list may make no progress until a LIST takes its place. With the
	// LIST it is less than 30 s.
	endMarkWait = 10 * time.Second
	// dispatchLimit is how long a hub may take for one event until its loop is called stalled.
	dispatchLimit = 5 * time.Second
)

// mirror is one resource on its way from upstream to its clients: reflector → cache → hub.
type mirror struct {
	// Static after construction.
	resource       *cache.Resource
	hub            *fanout.Hub
	reflector      *upstream.Reflector
	prober         *probes.Prober
	source         *source.Source
	backfills      *backfill.Coordinator // nil: none
	representation *representation
	state          *mirrorState
	createdAt      time.Time
	cancel         context.CancelFunc // of run
	// The loops of the reflector and of the hub, as the watchdog sees them.
	reflectorLoop, hubLoop *watchdog.LoopWatch

	ended           atomic.Bool // it must not move the state any more
	denials         upstream.Denials
	checkingServer  atomic.Bool  // a goroutine asks whether upstream serves others
	sinceCreation   atomic.Int64 // of the last request, in nanoseconds: a wall clock may be set
	silentWatches   atomic.Uint64
	comparisons     atomic.Uint64
	differences     atomic.Uint64 // that comparisons have found
	historyPace     states.Pace   // the history-checking goroutine's
	comparisonRound comparisonRound
}

// newMirror makes a mirror that run starts and cancel ends.
func newMirror(s *Set, info *object.Resource, state *mirrorState, cancel context.CancelFunc) *mirror {
	resource, prober := cache.New(info, s.limits, time.Now), probes.New(s.client, info)
	resource.SetBookmarkTemplate(codec.Template(info))
	m := &mirror{
		resource: resource, hub: fanout.NewHub(resource), prober: prober, state: state, createdAt: time.Now(), cancel: cancel,
		representation: newRepresentation(prober, resource, s.log), historyPace: s.historyPace,
	}
	m.hub.SetBudget(s.feedBytes)
	m.hub.SetLaneLimiter(s.lanes)
	if s.backfill != nil {
		m.backfills = backfill.New(m.hub, historySource{probes.NewHistory(s.client, info)}, s.backfill)
	}
	m.reflector = upstream.NewReflector(s.client, info, resource, upstream.WithLogger(s.log),
		upstream.WithPromised(resource.BeginRelist), upstream.WithObserver(m.observer(s)),
		upstream.WithEndMarkWait(s.endMarkWait))
	m.reflectorLoop = s.o.Clock.Watch(watchdog.Mirror, info.String(), staleThreshold, m.reflector.Progress)
	m.hubLoop = s.o.Clock.Watch(watchdog.Dispatcher, info.String(), dispatchLimit, m.hub.Progress)
	m.source = &source.Source{
		Hub: m.hub, Fresh: freshness.New(resource, checkedProber{prober, m}), Past: m.backfills,
		Codec: codec.New(info, s.release), Warning: m.reflector.Warning, Age: m.age,
		CompressesWatchLists: func() bool {
			return s.client.Capabilities().WatchListCompression == capabilities.Present
		},
	}
	return m
}

// historySource is probes.History as a backfill.HistorySource.
type historySource struct{ *probes.History }

func (h historySource) Begin(ctx context.Context) (uint64, backfill.HistoryWatch, error) {
	rv, stream, err := h.History.Begin(ctx)
	if err != nil {
		return 0, nil, err // and no stream that is not nil
	}
	return rv, stream, nil
}

// run mirrors until ctx ends. The hub ends after the reflector, so that feeds receive its last
// events.
func (m *mirror) run(ctx context.Context) {
	defer m.reflectorLoop.End()
	defer m.hubLoop.End()
	hubCtx, stopHub := context.WithCancel(context.WithoutCancel(ctx))
	var hub, representation sync.WaitGroup
	hub.Go(func() { _ = m.hub.Run(hubCtx) }) // ends with its context, without an error
	representation.Go(func() { m.representation.run(ctx) })
	_ = m.reflector.Run(ctx) // returns the reason why ctx ended
	representation.Wait()
	if m.backfills != nil {
		m.backfills.Close()
	}
	stopHub()
	hub.Wait()
}

// end stops the mirror. Its watches end so that their clients start again.
func (m *mirror) end() {
	m.ended.Store(true)
	m.resource.Close()
	m.cancel()
}

// usableSource is the mirror's source. It is nil while upstream answers better: while it refuses
// the resource, while its representation differs, and if it is unreachable and there is no state.
func (m *mirror) usableSource() *source.Source {
	m.sinceCreation.Store(int64(time.Since(m.createdAt)))
	if m.representation.isDoubtful() || m.state.State().Kind() == states.KindRefused ||
		!m.resource.IsReady() && m.reflector.Status().Err != nil {
		return nil
	}
	return m.source
}

// lastUsed is when the last request for the mirror came.
func (m *mirror) lastUsed() time.Time {
	return m.createdAt.Add(time.Duration(m.sinceCreation.Load()))
}

// awaitFirstState waits until the mirror has a state or has ended, or until ctx ends.
func (m *mirror) awaitFirstState(ctx context.Context) {
	m.awaitChange(ctx, func() bool { return m.resource.IsReady() || m.resource.IsClosed() })
}

// awaitEmpty waits until the mirror holds no object, or until ctx ends.
func (m *mirror) awaitEmpty(ctx context.Context) {
	m.awaitChange(ctx, func() bool {
		state := m.resource.Snapshot()
		return state == nil || state.Len() == 0
	})
}

// awaitChange waits until a change has made a condition true, or until ctx ends.
func (m *mirror) awaitChange(ctx context.Context, isMet func() bool) {
	for {
		changed := m.resource.Changed()
		if isMet() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
