package watch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
	"spillway/internal/object"
	"spillway/internal/plan"
	"spillway/internal/source"
	"spillway/internal/watchdog"
)

// Options configure a manager.
type Options struct {
	// Base is the parent of every stream. Its cause, once it ends, is an EndReason's error.
	Base context.Context
	// StallTimeout is how long a client may take nothing before it is evicted.
	StallTimeout time.Duration
	// Goroutines gives each stream a goroutine, even where writers can serve them. It is set where
	// there is no poller, which writers need, and by tests.
	Goroutines bool
	// Limiter, CPU and Eviction are shared with the other answers of the server.
	Limiter  *flowcontrol.Limiter
	CPU      *clientconn.CPULimiter
	Eviction *clientconn.EvictionPolicy

	// Clock watches the writers; nil: nothing does.
	Clock *watchdog.Monitor

	// Panicked reports what a panic of a delivery was about.
	Panicked func(p any)
	// Withdraw reports events that cannot be made in the requested encoding.
	Withdraw func(of *source.Source, e object.Encoding, cause error)

	Metrics *StreamMetrics
	Log     *zap.Logger
}

// Manager owns the streams that are open: it admits, delivers, counts and ends them.
type Manager struct {
	// Static after construction.
	opts      Options
	deliverer deliverer
	writers   *writers // nil: none

	mu struct {
		sync.Mutex
		draining  bool
		streams   map[*Stream]struct{}
		sentBytes map[string]int64 // by resource, on streams that have ended
		lastID    uint64           // of a stream
	}
	openStreams sync.WaitGroup
	endStats    endStats
}

// NewManager makes a manager. End its base, and then Wait.
func NewManager(o Options) *Manager {
	m := &Manager{opts: o, deliverer: goroutines{}}
	m.mu.streams, m.mu.sentBytes = map[*Stream]struct{}{}, map[string]int64{}
	if writersSupported && !o.Goroutines {
		m.writers = newWriters(m)
		m.deliverer = m.writers
	}
	o.Metrics.follow(m)
	return m
}

// HaveWriters reports that writers deliver streams.
func (m *Manager) HaveWriters() bool { return m.writers != nil }

// Wait returns when no stream is left and the writers have ended.
func (m *Manager) Wait() {
	m.openStreams.Wait()
	if m.writers != nil {
		m.writers.wait()
	}
}

// Len is how many streams are open.
func (m *Manager) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mu.streams)
}

// Streams lists the streams that are open.
func (m *Manager) Streams() []*Stream {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.mu.streams))
}

// addStream counts a stream in. It reports false while the server drains.
func (m *Manager) addStream(st *Stream) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.draining {
		return false
	}
	m.mu.lastID++
	st.id = m.mu.lastID
	m.mu.streams[st] = struct{}{}
	m.openStreams.Add(1)
	m.opts.Metrics.streams.WithLabelValues(st.resource(), plan.EncodingName(st.encoding)).Inc()
	return true
}

// removeStream forgets a stream, and reports whether the server drains.
func (m *Manager) removeStream(st *Stream) (draining bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opts.Metrics.streams.WithLabelValues(st.resource(), plan.EncodingName(st.encoding)).Dec()
	m.mu.sentBytes[st.resource()] += st.sentBytes.Load()
	delete(m.mu.streams, st)
	m.openStreams.Done()
	return m.mu.draining
}

// RecheckSlots makes the writers look at all slots: a parked one is looked at late otherwise.
func (m *Manager) RecheckSlots() {
	for _, st := range m.Streams() {
		st.poke()
	}
}

// ShedHeavy ends the watches with heavy selectors.
func (m *Manager) ShedHeavy() {
	for _, st := range m.Streams() {
		if !st.selector().Light() {
			st.Stop(EndMemoryPressure)
		}
	}
}

// RefuseNew admits no streams from now on.
func (m *Manager) RefuseNew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.draining = true
}

// Drain ends the streams one by one, spread over about the period, each right after a bookmark, so
// that clients reconnect with a fresh resourceVersion and not all at once (design D14). Call
// RefuseNew first. It returns when no stream is left, or when ctx ends: then the streams that are
// left are stopped at once, and have drainEndTimeout to end.
func (m *Manager) Drain(ctx context.Context, period time.Duration) {
	streams := m.Streams()
	left := make(chan struct{})
	go func() {
		m.openStreams.Wait()
		close(left)
	}()

	began, spread := time.Now(), period*9/10 // the last tenth is for streams to send their ends
	stoppedLate := false
	for i, st := range streams {
		if st.Reason() == "" {
			pauseUntil(ctx, left, began.Add(spread*time.Duration(i)/time.Duration(len(streams))))
			stoppedLate = stoppedLate || ctx.Err() != nil
			st.Stop(EndDrain)
		}
	}
	select {
	case <-left:
		return
	case <-ctx.Done():
	}
	if stoppedLate {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainEndTimeout)
		defer cancel()
		select {
		case <-left:
		case <-within.Done():
		}
	}
}

// drainEndTimeout is how long streams may take to end that were stopped when the time of a drain
// was over, as after a pause of the whole process.
const drainEndTimeout = time.Second

// CutConnections cuts the streams that are left: some may be waiting for clients that do not read.
func (m *Manager) CutConnections() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for st := range m.mu.streams {
		if st.out != nil { // else attach finds the server closed
			st.out.cut()
		}
	}
}

// pauseUntil waits until a time, until ctx ends, or until left is closed. It takes a time and not a
// duration, so that one late stream does not delay those after it.
func pauseUntil(ctx context.Context, left <-chan struct{}, at time.Time) {
	wait := time.Until(at)
	if wait <= 0 || ctx.Err() != nil {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-left:
	case <-ctx.Done():
	}
}
