package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/fanout"
	"spillway/internal/object"
	"spillway/internal/serve"
	"spillway/internal/upstream"
)

// mirror is one resource on its way from upstream to its clients: reflector → cache → hub.
type mirror struct {
	resource  *cache.Resource
	hub       *fanout.Hub
	reflector *upstream.Reflector
	prober    *upstream.Prober
	source    *serve.Source
	backfills *fanout.Backfills // nil: none
	cancel    context.CancelFunc

	representation *representation
	denials        upstream.Denials
	born           time.Time
	asked          atomic.Int64 // when somebody last asked for it, in nanoseconds from its birth: a wall clock may be set

	replaced          atomic.Uint64 // watches that were silent
	checks, differing atomic.Uint64 // comparisons with upstream's state, and what they found
	round             int           // of comparisons; the comparing goroutine's
	compared          time.Time     // likewise
	awaited           uint64        // likewise: how many complete states there are with the one that was asked for because of a difference
}

// newMirror starts nothing; run does. lost is called once if upstream says that the resource cannot be mirrored any more.
func newMirror(room *fanout.Room, lanes *fanout.Lanes, client *upstream.Client, info *object.Resource, limits cache.Limits, backfill *fanout.BackfillLimit, release *codec.Release, log *zap.Logger,
	lost func(*mirror, error)) *mirror {
	m := &mirror{resource: cache.New(info, limits, time.Now), prober: client.NewProber(info), born: time.Now()}
	m.hub = fanout.NewHub(m.resource)
	m.hub.Share(room)
	m.hub.ShareLanes(lanes)
	m.resource.Expect(codec.Template(info))
	m.representation = newRepresentation(client, m.resource, log)
	m.source = &serve.Source{Hub: m.hub, Fresh: cache.NewFreshness(m.resource, prober{m.prober, m}), Codec: codec.New(info, release)}
	if backfill != nil {
		m.backfills = fanout.NewBackfills(m.hub, past{client.NewPast(info)}, backfill)
		m.source.Past = m.backfills
	}
	m.reflector = upstream.NewReflector(client, info, m.resource, upstream.WithLogger(log), upstream.WithPromised(m.resource.Ask),
		upstream.OnError(func(err error) {
			if m.denials.Final(err, m.reflector.Status()) {
				go lost(m, err)
			}
		}),
		upstream.OnEarlyEnd(func() {
			if !info.Builtin { // those begin anew with their apiserver alone, and that has another version if it shows them otherwise
				m.representation.suspect()
			}
		}))
	m.source.Warning, m.source.Age = m.reflector.Warning, m.age
	m.source.CompressesWatchLists = m.reflector.CompressesWatchLists
	return m
}

// run mirrors until ctx ends or the mirror is stopped. When the reflector has returned, the hub tells its feeds what is left.
func (m *mirror) run(ctx context.Context) {
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

// usable is the mirror's source, nil while upstream has given it nothing and cannot be reached, or shows it otherwise than it is known
// here: then whoever asks had better hear that from upstream.
func (m *mirror) usable() *serve.Source {
	m.asked.Store(int64(time.Since(m.born)))
	if m.representation.doubtful() || !m.resource.Ready() && m.reflector.Status().Err != nil {
		return nil
	}
	return m.source
}

// awayAfter is how long upstream must have been of no use for the state to be called old. A watch that has to be opened a second time is no outage.
const awayAfter = 2 * time.Second

// age is how long ago the state was last known to be upstream's, if upstream is away; 0 while it is not.
func (m *mirror) age() time.Duration {
	away, contact := m.reflector.Away()
	if away.IsZero() || !m.resource.Ready() || time.Since(away) < awayAfter {
		return 0
	}
	return time.Since(contact)
}

// used is when somebody last asked for the mirror.
func (m *mirror) used() time.Time { return m.born.Add(time.Duration(m.asked.Load())) }

// end stops the mirror. Who watches it is told to start again.
func (m *mirror) end() {
	m.resource.Retire()
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

// prober shows upstream's prober as the cache wants it. A watch from a resourceVersion that upstream has not reached is silent
// (W-106), so a restored etcd shows itself only to those who ask how far it is: an upstream that is behind its own word is
// asked for its complete state. It is asked once, whoever finds out: one that takes long would never be complete if each had it begun anew.
type prober struct {
	*upstream.Prober
	mirror *mirror
}

func (p prober) Begin(ctx context.Context) (uint64, cache.Proof, error) {
	generation, promised := p.mirror.resource.Generation(), p.mirror.resource.Through()
	rv, probe, err := p.Prober.Begin(ctx)
	if err != nil {
		return 0, nil, err
	}
	if rv < promised && p.mirror.resource.Disown(generation) {
		p.mirror.reflector.Relist("upstream is behind its own word: its history has been rewritten")
	}
	return rv, proof{probe}, nil
}

// proof shows upstream's probe as the cache wants it.
type proof struct{ *upstream.Probe }

func (p proof) Prove(ctx context.Context, from uint64) (bookmark, last uint64, err error) {
	progress, err := p.Probe.Prove(ctx, from)
	if err != nil {
		return 0, 0, err
	}
	return max(progress.Bookmark, progress.Last), progress.Last, nil
}

// past shows upstream's past as the hub wants it.
type past struct{ *upstream.Past }

func (p past) Begin(ctx context.Context) (uint64, fanout.Telling, error) {
	rv, telling, err := p.Past.Begin(ctx)
	if err != nil {
		return 0, nil, err
	}
	return rv, telling, nil
}
