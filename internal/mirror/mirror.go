package mirror

import (
	"context"
	"fmt"
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
func newMirror(ms *Set, info *object.Resource, state *mirrorState) *mirror {
	m := &mirror{resource: cache.New(info, ms.limits, time.Now), prober: probes.New(ms.client, info), born: time.Now(),
		state: state, questions: ms.questions}
	m.hub = fanout.NewHub(m.resource)
	m.hub.SetBudget(ms.feedBytes)
	m.hub.SetLaneLimiter(ms.lanes)
	m.resource.SetBookmarkTemplate(codec.Template(info))
	m.representation = newRepresentation(m.prober, m.resource, ms.log)
	m.source = &source.Source{Hub: m.hub, Fresh: freshness.New(m.resource, prober{m.prober, m}),
		Codec: codec.New(info, ms.release)}
	if ms.backfill != nil {
		m.backfills = backfill.New(m.hub, history{probes.NewHistory(ms.client, info)}, ms.backfill)
		m.source.Past = m.backfills
	}
	m.reflector = upstream.NewReflector(ms.client, info, m.resource, upstream.WithLogger(ms.log),
		upstream.WithPromised(m.resource.BeginRelist),
		upstream.WithObserver(m.observer(ms)), upstream.WithEndMarkWait(ms.endMarkWait))
	m.watched = ms.o.Clock.Watch(watchdog.Mirror, info.String(), awayThreshold, m.reflector.Progress)
	m.dispatcher = ms.o.Clock.Watch(watchdog.Dispatcher, info.String(), dispatchLimit, m.hub.Progress)
	m.source.Warning, m.source.Age = m.reflector.Warning, m.age
	m.source.CompressesWatchLists = func() bool {
		return ms.client.Abilities().WatchListCompression == abilities.Present
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

// observer moves the mirror's state as its reflector fares.
func (m *mirror) observer(ms *Set) upstream.Observer {
	return upstream.Observer{
		OnState: func() { m.step(func() { m.state.Complete() }) },
		OnOpen:  func() { m.step(func() { m.state.Open() }) },
		OnWait:  func(until time.Time) { m.step(func() { m.state.Wait(until) }) },
		OnRelist: func(reason string) {
			m.step(func() { m.state.Interrupt(states.Cause{Why: states.WhyRelist, Text: reason}) })
		},
		OnFallback: func(err error) {
			m.step(func() { m.state.FallBack(states.Cause{Why: states.WhyNoInitialEventsEnd, Text: err.Error()}) })
		},
		OnEarlyEnd: func() {
			m.step(func() {
				m.state.Interrupt(states.Cause{
					Why: states.WhyWatchEnded, Text: "the watch was ended before its time, without an error",
				})
			})
			// Built-in ones begin anew with their apiserver alone, which has another version if it
			// shows them otherwise.
			if !m.resource.Info.Builtin {
				m.representation.suspectAtPace()
			}
		},
		OnFailure: func(err error) {
			if m.denials.IsFinal(err, m.reflector.Status()) {
				ms.active.Go(func() { ms.lose(m, err) })
				return
			}
			m.failed(ms, err)
		},
	}
}

// step moves the state, unless another mirror has it by now.
func (m *mirror) step(move func()) {
	if !m.ended.Load() {
		move()
	}
}

// failed moves the state after a failure that may pass. What the apiserver answers with an error is
// refused if it has been for more than a moment, and the apiserver says that it serves: then it is
// not away, and its answers to others are as good as those to the mirror.
func (m *mirror) failed(ms *Set, err error) {
	cause := causeOf(err)
	if cause.Why != states.WhyRefused || time.Since(m.reflector.Status().FailingSince) < awayThreshold {
		m.step(func() { m.state.Interrupt(cause) })
		return
	}
	if m.judging.CompareAndSwap(false, true) {
		ms.active.Go(func() {
			defer m.judging.Store(false)
			m.judged(cause, ms.client.Serves(ms.ctx))
		})
	}
}

// judged moves the state after an error of which it is known by now whether the apiserver serves
// others. The mirror may have succeeded meanwhile, and would not say so again.
func (m *mirror) judged(cause states.Cause, serves bool) {
	if m.well() {
		return
	}
	m.step(func() {
		if serves {
			m.state.Refuse(cause, m.state.State().Next())
		} else {
			m.state.Interrupt(states.Cause{Why: states.WhyUnreachable, Text: cause.Text})
		}
	})
	if m.well() {
		m.step(m.state.Open)
	}
}

// well reports that the last that upstream sent was of use.
func (m *mirror) well() bool {
	since, _ := m.reflector.FailingSince()
	return since.IsZero()
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

// awayThreshold is how long upstream must have been of no use for the state to be called old. A
// watch that has to be opened a second time is no outage.
const awayThreshold = 2 * time.Second

// dispatchLimit is how long a hub may take for one event until its loop is called stalled.
const dispatchLimit = 5 * time.Second

// age is how long ago the state was last known to be upstream's, if it is not kept current; 0 while
// it is. away says that the apiserver does not answer; otherwise it does, and yet nothing keeps the
// state current. A mirror whose own loop is stuck cannot say so: then the clock does, whatever
// state it is in.
func (m *mirror) age() (age time.Duration, away bool) {
	s := m.state.State()
	if !s.Holds() || !m.resource.IsReady() {
		return 0, false
	}
	since, contact := m.reflector.FailingSince()
	switch {
	case !m.watched.StalledSince().IsZero(), isOver(m.reflector.UnwatchedSince()):
		return time.Since(m.lastCurrent()), s.Cause().Why == states.WhyUnreachable
	case !isOver(since), s.Kind() == states.KindSynced:
		return 0, false
	}
	return time.Since(contact), s.Cause().Why == states.WhyUnreachable
}

// lastCurrent is when a watch last kept the state current. Pages of a new state are contact, but
// change nothing of it until all of them have come.
func (m *mirror) lastCurrent() time.Time {
	contact, unwatched := m.reflector.Contact(), m.reflector.UnwatchedSince()
	if !unwatched.IsZero() && unwatched.Before(contact) {
		return unwatched
	}
	return contact
}

// isOver reports that awayThreshold is over since then; zero: never.
func isOver(since time.Time) bool { return !since.IsZero() && time.Since(since) >= awayThreshold }

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

// prober shows upstream's prober as the cache wants it. A watch from a resourceVersion that
// upstream has not reached is silent (W-106), so a restored etcd shows itself only to a question of
// how far it is: an upstream that is behind its own word is relisted. It is relisted once, whatever
// finds out: a list that takes long would never be complete if each finder began it anew.
type prober struct {
	*probes.Prober
	mirror *mirror
}

func (p prober) Begin(ctx context.Context) (uint64, freshness.Proof, error) {
	generation, promised := p.mirror.resource.Generation(), p.mirror.resource.PromisedRV()
	rv, probe, err := p.Prober.Begin(ctx)
	if err != nil {
		return 0, nil, err
	}
	p.mirror.judge(rv, generation, promised)
	return rv, proof{probe}, nil
}

// State implements freshness.Upstream.
func (p prober) State(ctx context.Context) (uint64, map[string]uint64, error) {
	generation, promised := p.mirror.resource.Generation(), p.mirror.resource.PromisedRV()
	rv, versions, err := p.Prober.State(ctx)
	if err == nil {
		p.mirror.judge(rv, generation, promised)
	}
	return rv, versions, err
}

// judge hears how far upstream is. One that is behind what it promised before has another history
// than the mirror's.
func (m *mirror) judge(rv, generation, promised uint64) {
	if rv < promised && m.resource.NoteHistoryReset(generation) {
		m.reflector.Relist(fmt.Sprintf("upstream is at resourceVersion %d and was at %d: its history has been "+
			"rewritten, as by an etcd restored from a backup, or more than one cluster answers at its address", rv, promised))
	}
}

// proof shows upstream's probe as the cache wants it.
type proof struct{ *probes.Probe }

func (p proof) Prove(ctx context.Context, from uint64) (bookmark, last uint64, err error) {
	progress, err := p.Probe.Prove(ctx, from)
	if err != nil {
		return 0, 0, err
	}
	return max(progress.Bookmark, progress.Last), progress.Last, nil
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
