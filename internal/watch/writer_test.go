package watch

import (
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/clientconn"
)

// broken is a nonblockingSender with a bug.
type broken struct{}

func (broken) offer([]byte) (int, error) { panic("boom") }

func (broken) park(func()) {}

// A panic in a turn ends the stream whose turn it was; the writer's others go on.
func TestAPanicInATurnEndsItsStreamAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *Manager) deliverer {
			d := &writers{}
			w, n := newWriter(s), 0
			w.openSender = func(c *ConnSink) nonblockingSender {
				if n++; n == 1 {
					return broken{}
				}
				return clientconn.PacedConnOf(c.Conn).NetConn().(*narrow)
			}
			d.shards = append(d.shards, w)
			d.start(s)
			return d
		})
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=100")
		synctest.Wait()
		other := w.watch("/api/v1/pods?watch=1&resourceVersion=100")
		synctest.Wait()
		w.set("a/x 101")
		p.ends(EndAborted)
		w.set("a/x 102")
		other.gets("ADDED a/x 101", "MODIFIED a/x 102")
	})
}

// A slot that has read the log goes on with its feed once it has everything, and not only when
// something is due: until then each event would be made for it alone.
func TestBackFromTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, deliveries["writers"])
		early := w.watch("/api/v1/pods?watch=1&resourceVersion=103") // waits for the log
		picky := w.watch("/api/v1/namespaces/o/pods?watch=1&resourceVersion=103")
		synctest.Wait()
		w.set("a/x 104")
		early.gets("ADDED a/x 104")
		w.set("a/x 105") // by now the hub knows the feeds
		early.gets("MODIFIED a/x 105")
		picky.gets()
		for _, p := range []*testClient{early, picky} {
			if !p.stream.cursor.IsLive() {
				t.Errorf("%q still waits for the log", p.stream.selector().Namespace)
			}
		}
		replayed := w.source.Hub.Stats().ReplayedFrames.Load()
		w.set("a/x 106")
		early.gets("MODIFIED a/x 106")
		if n := w.source.Hub.Stats().ReplayedFrames.Load(); replayed == 0 || n != replayed {
			t.Errorf("%d events were made for it alone, and then %d", replayed, n)
		}
	})
}

// TestStopAmongAdoptions shows that streams past their initial events end when the server stops,
// before and after their adoption by a writer.
func TestStopAmongAdoptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, deliveries["writers"], "a/x 5")
		slow := w.watch("/api/v1/pods?watch=1&resourceVersion=105&sendInitialEvents=true&" +
			"resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1")
		adopted := w.watch("/api/v1/pods?watch=1&resourceVersion=100")
		synctest.Wait()
		w.stop(EndAborted.AsError())
		adopted.ends(EndAborted)
		late := w.watch("/api/v1/pods?watch=1&resourceVersion=100")
		for _, p := range []*testClient{slow, late} {
			if got := <-p.reason; got != EndAborted {
				t.Errorf("ended: %s", got)
			}
		}
	})
}

// flushes counts the calls of Flush.
type flushes int

func (f *flushes) Flush() { *f++ }

// What slots on HTTP/2 have offered is sent soon, also while the queue does not get empty.
func TestFlushAmongManyTurns(t *testing.T) {
	t.Parallel()
	w, sent := newWriter(&Manager{}), new(flushes)
	slots := turnsOf(&w.queue, "owner", 3*turnsPerDrain)
	for _, s := range slots {
		s.ended = true // its turn is short
	}
	pushAll(&w.queue, slots)
	w.unflushed.add(sent)
	time.Sleep(flushDelay)
	if !w.runTurns() || *sent != 1 {
		t.Errorf("after %d turns of %d, it was sent %d times", turnsPerDrain, len(slots), *sent)
	}
}
