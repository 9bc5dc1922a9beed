package watch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/auth/reauth"
)

// TestAPausedWatchSendsNothingUntilItResumes shows that a client receives nothing while upstream
// does not answer whether the watch is still allowed, not even bookmarks, and then everything that
// it missed.
func TestAPausedWatchSendsNothingUntilItResumes(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=0&allowWatchBookmarks=1")
		other := w.watch("/api/v1/pods?watch=1&resourceVersion=100")
		p.gets("ADDED a/x 5", "BOOKMARK 100 end")
		p.stream.Pause()
		p.stream.Pause() // once more is no more
		w.set("a/x 101")
		other.gets("MODIFIED a/x 101")
		time.Sleep(5 * time.Minute)
		w.set("a/x 102")
		other.gets("MODIFIED a/x 102")
		p.gets()
		p.goesOn()
		p.stream.Resume()
		p.stream.Resume()
		p.gets("MODIFIED a/x 101", "MODIFIED a/x 102", "BOOKMARK 102") // long due
		w.set("a/x 103")
		p.gets("MODIFIED a/x 103")
		time.Sleep(time.Minute)
		p.gets("BOOKMARK 103")
	})
}

// TestAPausedWatchEndsCleanly shows that a paused watch may end, cleanly and without events.
func TestAPausedWatchEndsCleanly(t *testing.T) {
	const query = "/api/v1/pods?watch=1&resourceVersion=100&allowWatchBookmarks=1&timeoutSeconds=100"
	for reason, end := range map[EndReason]func(*testClient){
		EndTimeout:   func(*testClient) { time.Sleep(100 * time.Second) },
		EndDrain:     func(p *testClient) { p.stream.Stop(EndDrain) },
		EndForbidden: func(p *testClient) { p.stream.End(reauth.EndForbidden) },
	} {
		bubbles(t, func(t *testing.T, d delivery) {
			w := newWorld(t, d, "a/x 5")
			p := w.watch(query)
			p.gets()
			p.stream.Pause()
			w.set("a/x 101")
			end(p)
			p.ends(reason)
		})
	}
}

// TestARevokedWatchSendsNothingMore shows that a client receives nothing more from one event to the
// next once the watch is not allowed, also inside a seam. After the clean end it sends its request
// again, and gets the reason.
func TestARevokedWatchSendsNothingMore(t *testing.T) {
	for _, why := range reauth.Ends {
		bubbles(t, func(t *testing.T, d delivery) {
			w := newWorld(t, d, "a/x 5")
			p := w.watch("/api/v1/pods?watch=1&resourceVersion=0&allowWatchBookmarks=1")
			p.gets("ADDED a/x 5", "BOOKMARK 100 end")
			p.stream.End(why)
			p.ends(EndReason(why))
			p.stream.End(why) // what was under way may still arrive
			time.Sleep(time.Minute)
		})
	}
}

// What a client does not take at once when its watch is revoked, it does not get: the connection is
// cut.
func TestRevokedWhileFull(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=100")
		p.gets()
		p.pause()
		w.set("a/x 101") // is taken by the read under way
		synctest.Wait()
		w.set("a/x 102")
		synctest.Wait()
		p.stream.End(reauth.EndForbidden)
		time.Sleep(CleanEndTimeout)
		synctest.Wait()
		if got := <-p.reason; got != EndForbidden {
			t.Errorf("ended: %s", got)
		}
		p.resume()
		if _, events, terminated := p.received(); terminated || len(events) > 1 {
			t.Errorf("got %q, terminated: %v", events, terminated)
		}
	})
}

// TestRevokedWhileFullEndsAtOnce shows that a slot whose socket is full is cut at once when its
// watch is revoked: no end could be sent.
func TestRevokedWhileFullEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, deliveries["writers"], "a/x 5")
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=100")
		p.gets()
		p.pause()
		w.set("a/x 101") // is taken by the read under way
		synctest.Wait()
		w.set("a/x 102")
		synctest.Wait()
		p.goesOn()
		p.stream.End(reauth.EndForbidden)
		synctest.Wait() // in a bubble that takes no time
		select {
		case got := <-p.reason:
			if got != EndForbidden {
				t.Errorf("ended: %s", got)
			}
		default:
			t.Error("it waits to be cut")
		}
		p.resume()
		if _, events, terminated := p.received(); terminated || len(events) > 1 {
			t.Errorf("got %q, terminated: %v", events, terminated)
		}
	})
}

// What a client has not taken when its watch is held waits with it, and that is no stall.
func TestHeldWhileFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, deliveries["writers"], "a/x 5")
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=100&timeoutSeconds=1000")
		p.gets()
		p.pause()
		w.set("a/x 101") // is taken by the read under way
		synctest.Wait()
		w.set("a/x 102")
		synctest.Wait()
		p.stream.Pause()
		time.Sleep(10 * worldStall)
		p.goesOn()
		p.resume()
		time.Sleep(time.Second)
		p.gets("MODIFIED a/x 101")
		p.stream.Resume()
		p.gets("MODIFIED a/x 102")
		p.pause()
		w.set("a/x 103")
		synctest.Wait()
		w.set("a/x 104")
		synctest.Wait()
		p.stream.Pause()
		time.Sleep(1000 * time.Second)
		synctest.Wait()
		if got := <-p.reason; got != EndReviewTimeout {
			t.Errorf("ended: %s", got)
		}
	})
}

// Initial events wait, too, and end if they have to.
func TestHeldFromTheBeginning(t *testing.T) {
	const query = "/api/v1/pods?watch=1&resourceVersion=0&allowWatchBookmarks=1&timeoutSeconds=300"
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		p := w.watchAs(query, StreamOptions{}, (*Stream).Pause)
		time.Sleep(time.Minute)
		p.gets()
		w.holdsNoPermit() // others have a use for it
		p.stream.Resume()
		p.gets("ADDED a/x 5", "BOOKMARK 100 end")

		revoked := w.watchAs(query, StreamOptions{}, (*Stream).Pause)
		revoked.gets()
		revoked.stream.End(reauth.EndUnauthenticated)
		revoked.ends(EndUnauthenticated)

		late := w.watchAs(query, StreamOptions{}, (*Stream).Pause)
		time.Sleep(300 * time.Second)
		late.ends(EndTimeout)

		never := w.watchAs(query, StreamOptions{}, func(st *Stream) { st.End(reauth.EndForbidden) })
		never.ends(EndForbidden)
	})
}

// TestAWatchPausedInASeamIsCut shows that a watch that has to end while it is paused in the middle
// of a seam is cut: there is no clean end there.
func TestAWatchPausedInASeamIsCut(t *testing.T) {
	for name, end := range map[string]func(*Stream){
		"its time is over": func(st *Stream) { st.deadline = now() },
		"drained":          func(st *Stream) { st.Stop(EndDrain) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, deliveries["goroutines"])
				st := w.manager.newStream(w.plan("/api/v1/pods?watch=1&resourceVersion=100"), StreamOptions{})
				var err error
				if st.cursor, err = w.source.Hub.ViewFor("").CursorFromRV(100, st.selector(), st.encoding); err != nil {
					t.Fatal(err)
				}
				var pods []string
				for i := range 2000 { // more than a run
					pods = append(pods, fmt.Sprintf("a/pod-%04d %d", i, 101+i))
				}
				w.relist(5000, pods...)
				synctest.Wait()
				if run, reason, err := st.pullRun(false); len(run) == 0 || reason != "" || err != nil || !st.cursor.IsInSeam() {
					t.Fatalf("%d bytes, %s, %v, in a seam: %t", len(run), reason, err, st.cursor.IsInSeam())
				}
				st.Pause()
				if run, reason, err := st.pullRun(true); len(run) > 0 || reason != "" || err != nil {
					t.Errorf("held: %d bytes, %s, %v", len(run), reason, err)
				}
				end(st)
				if run, reason, err := st.pullRun(true); len(run) > 0 || reason != EndAborted || err != nil {
					t.Errorf("ended: %d bytes, %s, %v", len(run), reason, err)
				}
			})
		})
	}
}
