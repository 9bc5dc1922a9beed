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
	"spillway/internal/upstream/abilities"
	"spillway/internal/upstream/probes"
	"spillway/internal/watchdog"
)

// mirror is one resource on its way from upstream to its clients: reflector → cache → hub.
type mirror struct {
	resource  *cache.Resource
	hub       *fanout.Hub
	reflector *upstream.Reflector
	prober    *probes.Prober
	source    *source.Source
	backfills *backfill.Coordinator // nil: none
	cancel    context.CancelFunc
	state     *mirrorState
	ended     atomic.Bool // its word on the state does not count any more
	// watched and dispatcher are the reflector's loop and the hub's, as the clock sees them.
	watched, dispatcher *watchdog.LoopWatch

	representation *representation
	denials        upstream.Denials
	born           time.Time
	judging        atomic.Bool // it is being found out whether upstream serves others
	// asked is when the last request for it came, in nanoseconds from its birth: a wall clock may be
	// set.
	asked atomic.Int64

	questions         states.Pace   // of how far upstream is; the checking goroutine's
	replaced          atomic.Uint64 // watches that were silent
	checks, differing atomic.Uint64 // comparisons with upstream's state, and what they found
	round             int           // of comparisons; the comparing goroutine's
	compared          time.Time     // likewise
	// awaited is how many complete states there are with the one that was requested because of a
	// difference; the comparing goroutine's.
	awaited uint64
}

// newMirror starts nothing; run does.
func newMirror(s *Set, info *object.Resource, state *mirrorState) *mirror {
	m := &mirror{resource: cache.New(info, s.limits, time.Now), prober: probes.New(s.client, info), born: time.Now(),
		state: state, questions: s.questions}
	m.hub = fanout.NewHub(m.resource)
	m.hub.SetBudget(s.feedBytes)
	m.hub.SetLaneLimiter(s.lanes)
	m.resource.SetBookmarkTemplate(codec.Template(info))
	m.representation = newRepresentation(m.prober, m.resource, s.log)
	m.source = &source.Source{Hub: m.hub, Fresh: freshness.New(m.resource, prober{m.prober, m}),
		Codec: codec.New(info, s.release)}
	if s.backfill != nil {
		m.backfills = backfill.New(m.hub, history{probes.NewHistory(s.client, info)}, s.backfill)
		m.source.Past = m.backfills
	}
	m.reflector = upstream.NewReflector(s.client, info, m.resource, upstream.WithLogger(s.log),
		upstream.WithPromised(m.resource.BeginRelist),
		upstream.WithObserver(m.observer(s)), upstream.WithEndMarkWait(s.endMarkWait))
	m.watched = s.o.Clock.Watch(watchdog.Mirror, info.String(), awayThreshold, m.reflector.Progress)
	m.dispatcher = s.o.Clock.Watch(watchdog.Dispatcher, info.String(), dispatchLimit, m.hub.Progress)
	m.source.Warning, m.source.Age = m.reflector.Warning, m.age
	m.source.CompressesWatchLists = func() bool {
		return s.client.Abilities().WatchListCompression == abilities.Present
	}
	return m
}

// run mirrors until ctx ends or the mirror is stopped. When the reflector has returned, the hub
// tells its feeds what is left.
func (m *mirror) run(ctx context.Context) {
	defer m.watched.End()
	defer m.dispatcher.End()
	hubCtx, stopHub := context.WithCancel(context.WithoutCancel(ctx))
	hubDone := make(chan struct{})
	go func() {
		defer close(hubDone)
		_ = m.hub.Run(hubCtx) // ends with its context, without an error
	}()
	var aside sync.WaitGroup
	aside.Go(func() { m.representation.run(ctx) })
	_ = m.reflector.Run(ctx) // returns the reason why ctx ended
	aside.Wait()
	if m.backfills != nil {
		m.backfills.Close()
	}
	stopHub()
	<-hubDone
}

// usable is the mirror's source, nil while upstream refuses the resource, has given it nothing and
// cannot be reached, or shows it otherwise than it is known here: then upstream answers better.
func (m *mirror) usable() *source.Source {
	m.asked.Store(int64(time.Since(m.born)))
	if m.representation.doubtful() || m.state.State().Kind() == states.KindRefused ||
		!m.resource.IsReady() && m.reflector.Status().Err != nil {
		return nil
	}
	return m.source
}

// dispatchLimit is how long a hub may take for one event until its loop is called stalled.
const dispatchLimit = 5 * time.Second

// used is when the last request for the mirror came.
func (m *mirror) used() time.Time { return m.born.Add(time.Duration(m.asked.Load())) }

// end stops the mirror. Its watches end so that their clients start again.
func (m *mirror) end() {
	m.ended.Store(true)
	m.resource.Close()
	m.cancel()
}

// awaitEmpty waits until the mirror holds no object, or until ctx ends.
func (m *mirror) awaitEmpty(ctx context.Context) {
	for {
		changed := m.resource.Changed()
		if s := m.resource.Snapshot(); s == nil || s.Len() == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// history adapts probes.History to backfill.HistorySource.
type history struct{ *probes.History }

func (h history) Begin(ctx context.Context) (uint64, backfill.HistoryWatch, error) {
	rv, stream, err := h.History.Begin(ctx)
	if err != nil {
		return 0, nil, err
	}
	return rv, stream, nil
}

// endMarkWait is how long a watch-list may make no progress before a LIST takes its place. With the
// LIST it is less than 30 s.
const endMarkWait = 10 * time.Second
