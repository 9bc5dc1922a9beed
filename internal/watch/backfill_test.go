package watch

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/auth/reauth"
	"spillway/internal/backfill"
	"spillway/internal/cache"
	"spillway/internal/object"
	"spillway/internal/source/sourcetest"
)

// scriptedHistory is a past of which the test says what it tells, and when.
type scriptedHistory struct {
	t    *testing.T
	says chan func() (object.Type, *object.Object, uint64, error)
	ctx  context.Context
}

func (n *scriptedHistory) Begin(context.Context) (uint64, backfill.HistoryWatch, error) {
	return 1000, n, nil
}

func (n *scriptedHistory) Watch(ctx context.Context, _ object.Selector, _ uint64) error {
	n.ctx = ctx
	return nil
}

func (n *scriptedHistory) Next() (object.Type, *object.Object, uint64, error) {
	select {
	case say := <-n.says:
		return say()
	case <-n.ctx.Done():
		return 0, nil, 0, io.EOF
	}
}

func (n *scriptedHistory) Close() {}

func (n *scriptedHistory) tell(kind object.Type, pod string) {
	o := sourcetest.ParseOne(n.t, sourcetest.Pods, pod)
	n.says <- func() (object.Type, *object.Object, uint64, error) { return kind, o, o.RV, nil }
}

func (n *scriptedHistory) mark(rv uint64) {
	n.says <- func() (object.Type, *object.Object, uint64, error) { return 0, nil, rv, nil }
}

// narrate starts a watch of a world whose log begins at 100. The test sends the events before that.
func narrate(t *testing.T, w *world, query string, rv uint64) (*scriptedHistory, *testClient) {
	t.Helper()
	n := &scriptedHistory{t: t, says: make(chan func() (object.Type, *object.Object, uint64, error))}
	w.source.Past = backfill.New(w.source.Hub, n, backfill.NewWatchLimit(1))
	t.Cleanup(w.source.Past.Close)
	return n, w.watch(fmt.Sprintf("/api/v1/pods?watch=1&resourceVersion=%d%s", rv, query))
}

// TestABackfillCanBePausedAndEnded shows that a watch may be paused during its backfill, and ends
// for the same reasons as any other.
func TestABackfillCanBePausedAndEnded(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 95")
		n, p := narrate(t, w, "", 50)
		p.gets()
		n.tell(object.Added, "a/y 60")
		p.gets("ADDED a/y 60")
		p.stream.Pause()
		n.tell(object.Deleted, "a/y 61")
		n.mark(70)
		p.gets()
		p.stream.Resume()
		p.gets("DELETED a/y 61")
		w.holdsNoPermit() // what happened is no large answer
		n.tell(object.Modified, "a/x 95")
		n.mark(101) // the log goes on
		p.gets("MODIFIED a/x 95")
		w.set("a/x 105")
		p.gets("MODIFIED a/x 105")
	})
	for reason, end := range map[EndReason]func(*testClient){
		EndTimeout:   func(*testClient) { time.Sleep(100 * time.Second) },
		EndDrain:     func(p *testClient) { p.stream.Stop(EndDrain) },
		EndForbidden: func(p *testClient) { p.stream.End(reauth.EndForbidden) },
	} {
		for _, held := range []bool{false, true} {
			bubbles(t, func(t *testing.T, d delivery) {
				n, p := narrate(t, newWorld(t, d, "a/x 95"), "&timeoutSeconds=100&allowWatchBookmarks=1", 50)
				n.tell(object.Added, "a/y 60")
				p.gets("ADDED a/y 60")
				if held {
					p.stream.Pause()
					n.tell(object.Added, "a/z 62")
					synctest.Wait()
				}
				end(p)
				p.ends(reason)
			})
		}
	}
}

// TestPastAndBookmarks shows that no bookmark is sent during a backfill, and that those after it
// are true.
func TestPastAndBookmarks(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 95")
		n, p := narrate(t, w, "&allowWatchBookmarks=1&fieldSelector=metadata.name=y", 50)
		time.Sleep(2 * time.Minute)
		n.tell(object.Added, "a/x 95")
		n.tell(object.Added, "a/y 96")
		time.Sleep(2 * time.Minute)
		p.gets("ADDED a/y 96")
		n.mark(120)
		time.Sleep(time.Minute)
		p.gets("BOOKMARK 100")
	})
}

// TestPastOfAStalledClient shows that a client that takes nothing of its backfill is evicted.
func TestPastOfAStalledClient(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		n, p := narrate(t, newWorld(t, d, "a/x 95"), "", 50)
		p.gets()
		p.pause()
		for i := range 20 {
			n.tell(object.Added, fmt.Sprintf("a/y%d %d", i, 51+i))
		}
		time.Sleep(worldStall + time.Minute)
		synctest.Wait()
		if got := <-p.reason; got != EndSlowClientStalled {
			t.Errorf("ended: %s", got)
		}
	})
}

// Every reason why the past is not told has a series, and no watch fails for another.
func TestUnfilledReasons(t *testing.T) {
	for err, want := range map[error]backfillFailure{
		&cache.ExpiredError{}: backfillExpired, backfill.ErrBusy: backfillBusy, backfill.ErrBehind: backfillBehind,
		endError(EndTimeout): "", io.ErrClosedPipe: "",
	} {
		if got := backfillFailureOf(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if !slices.Contains(EndReasons, ReasonOf(backfill.ErrBehind)) || !ReasonOf(backfill.ErrBusy).Clean() {
		t.Error("a stream that cannot be backfilled now does not end cleanly")
	}
}

// TestOvertakenByASeam is about a client from a replica that is ahead, whose resourceVersion is
// inside a gap when the log gets there. It resumes by a backfill. Without backfills it has expired.
func TestOvertakenByASeam(t *testing.T) {
	for _, told := range []bool{true, false} {
		bubbles(t, func(t *testing.T, d delivery) {
			w := newWorld(t, d, "a/x 95")
			if told {
				w.source.Past = backfill.New(w.source.Hub, &scriptedHistory{t: t}, backfill.NewWatchLimit(1))
				t.Cleanup(w.source.Past.Close)
			}
			p := w.watch("/api/v1/pods?watch=1&resourceVersion=150&allowWatchBookmarks=1")
			p.gets()
			time.Sleep(time.Minute)
			w.relist(200, "a/y 160")
			if told {
				p.ends(EndBackfillFailed)
			} else {
				p.ends(EndResourceVersionExpired, "ERROR 410 too old resource version: 150 (200)")
			}
		})
	}
}
