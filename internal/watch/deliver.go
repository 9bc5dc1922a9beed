package watch

import (
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/watchdog"
)

// deliverer moves frames from cursors to sinks, until each stream ends.
type deliverer interface {
	// deliver brings a stream to its end, and then calls its Cleanup. It may return long before that.
	deliver(s *Stream)
}

// goroutines is the deliverer that gives each stream the goroutine that calls it. It is the
// plainest one, what every other must be equal to, and the one for sinks that are no sockets.
type goroutines struct{}

func (g goroutines) deliver(s *Stream) {
	if err := s.deliverInitial(); err != nil {
		g.sendEnd(s, nil, "", err)
		return
	}
	g.deliverLive(s)
}

// deliverLive sends what follows the initial events.
func (g goroutines) deliverLive(s *Stream) {
	s.scheduleBookmark(now())
	s.markLive()
	timer := time.NewTimer(s.nextDue().timeLeft())
	defer timer.Stop()
	ended := s.Done()
	for {
		wakeup := s.cursor.Wait()
		run, reason, err := s.pullRun(true)
		if reason != "" || err != nil {
			g.sendEnd(s, run, reason, err)
			return
		}
		if len(run) > 0 {
			s.noteBlocked(len(run), now())
			err := s.write(run)
			s.noteBlocked(0, 0)
			if err != nil {
				g.sendEnd(s, nil, "", err)
				return
			}
			continue
		}
		if s.pausedUntil != nil {
			wakeup = s.pausedUntil
		}
		timer.Reset(s.nextDue().timeLeft())
		select {
		case <-wakeup:
		case <-timer.C:
		case <-ended:
		}
	}
}

// sendEnd sends run, which is still to be sent, and the end, and cleans up.
func (goroutines) sendEnd(s *Stream, run []byte, reason EndReason, cause error) {
	last, reason := s.lastFrames(reason, cause)
	if reason.Clean() {
		if err := s.write(slices.Concat(run, last)); err != nil {
			reason = s.endReasonOf(err)
		}
	}
	s.Cleanup(reason)
}

// writers is the deliverer that needs no goroutine per stream: each is a slot of one of a few
// writers, from its initial events to its end. The initial events are made and sent by the
// goroutine that came with it, because they wait for their client.
type writers struct {
	shards []*writer
	next   atomic.Uint32
	done   sync.WaitGroup
}

// writerTimeout is how long a writer may take for some turns until its loop is reported as stalled.
// It never waits for a client.
const writerTimeout = 5 * time.Second

// newWriters starts writers; they end with the server's base. Half of the processors are theirs:
// the rest have to make what they send.
func newWriters(m *Manager) *writers {
	d := &writers{}
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		d.shards = append(d.shards, newWriter(m))
	}
	d.start(m)
	return d
}

func (d *writers) start(m *Manager) {
	for i, w := range d.shards {
		watched := m.opts.Clock.Watch(watchdog.Writer, strconv.Itoa(i), writerTimeout, w.loop.Progress)
		d.done.Go(func() {
			defer watched.End()
			w.run(m.opts.Base)
		})
	}
}

func (d *writers) deliver(s *Stream) {
	err := s.deliverInitial()
	switch {
	case err != nil:
		goroutines{}.sendEnd(s, nil, "", err)
	case !s.selector().Light(): // matching a long log with it would delay other streams
		goroutines{}.deliverLive(s)
	case !d.shards[int(d.next.Add(1))%len(d.shards)].adoptStream(s):
		goroutines{}.deliverLive(s)
	}
}

// wait returns when the writers have ended.
func (d *writers) wait() { d.done.Wait() }
