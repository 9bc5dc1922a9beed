package watch

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/clientconn"
	"spillway/internal/plan"
)

// Every start of W-100 that is served here.
func TestInitialStates(t *testing.T) {
	const notOlder = "&resourceVersionMatch=NotOlderThan"
	state := []string{"ADDED a/x 60", "ADDED b/x 50", "ADDED c/x 70"}
	with := func(more ...string) []string { return append(append([]string{}, state...), more...) }
	for _, c := range []struct {
		name, query string
		want        []string
	}{
		{"unset", "watch=1", state},
		{"unset, bookmarks", "watch=1&allowWatchBookmarks=1", with("BOOKMARK 110 end")},
		{"0", "watch=1&resourceVersion=0", state},
		{"0, bookmarks", "watch=1&resourceVersion=0&allowWatchBookmarks=1", with("BOOKMARK 110 end")},
		{"N", "watch=1&resourceVersion=100", []string{"ADDED a/y 101", "DELETED a/y 110"}},
		{"N in the middle", "watch=1&resourceVersion=101&allowWatchBookmarks=1", []string{"DELETED a/y 110"}},
		{"N now", "watch=1&resourceVersion=110&allowWatchBookmarks=1", nil},
		{"unset, initial", "watch=1&sendInitialEvents=true" + notOlder, state},
		{"unset, initial, bookmarks", "watch=1&sendInitialEvents=true&allowWatchBookmarks=1" + notOlder,
			with("BOOKMARK 110 end")},
		{"0, initial, bookmarks", "watch=1&resourceVersion=0&sendInitialEvents=true&allowWatchBookmarks=1" + notOlder,
			with("BOOKMARK 110 end")},
		{"N, initial", "watch=1&resourceVersion=1&sendInitialEvents=true" + notOlder, state},
		{"N, initial, bookmarks", "watch=1&resourceVersion=110&sendInitialEvents=true&allowWatchBookmarks=1" + notOlder,
			with("BOOKMARK 110 end")},
		{"0, none", "watch=1&resourceVersion=0&sendInitialEvents=false&allowWatchBookmarks=1" + notOlder, nil},
		{"N, none", "watch=1&resourceVersion=101&sendInitialEvents=false" + notOlder, []string{"DELETED a/y 110"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubbles(t, func(t *testing.T, d delivery) {
				w := newWorld(t, d, "c/x 70", "a/x 60", "b/x 50")
				w.set("a/y 101")
				w.remove("a/y 110")
				w.oracle.Set(110, nil)
				p := w.watch("/api/v1/pods?" + c.query)
				p.gets(c.want...)
				w.set("b/x 111")
				p.gets("MODIFIED b/x 111")
				p.goesOn()
			})
		})
	}
}

// The head is there before anything else is (W-102), and says what upstream's does (W-3, W-5).
func TestTheHeadIsSentBeforeAnyEvent(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d)
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=100")
		head, events, _ := p.received()
		if head == nil || len(events) > 0 {
			t.Fatalf("head %v, events %q", head, events)
		}
		if head.StatusCode != 200 || strings.Join(head.TransferEncoding, "") != "chunked" ||
			head.Header.Get("Audit-Id") != "audit" ||
			head.Header.Get("Content-Type") != "application/json" || head.Header.Get("Cache-Control") != "no-cache, private" ||
			head.Header.Get("Date") == "" || head.Header.Get("Content-Length") != "" {
			t.Errorf("%d %v %v", head.StatusCode, head.TransferEncoding, head.Header)
		}
	})
}

func TestScopesAndSelectors(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "o/k 1 app=x", "o/l 2 app=y", "o-x/k 3 app=x")
		all := w.watch("/api/v1/pods?watch=1&resourceVersion=0")
		all.gets("ADDED o-x/k 3", "ADDED o/k 1", "ADDED o/l 2") // bytewise by the whole key (W-61)
		one := w.watch("/api/v1/namespaces/o/pods?watch=1&resourceVersion=0&labelSelector=app%3Dx")
		one.gets("ADDED o/k 1")
		name := w.watch("/api/v1/pods?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dk")
		name.gets("ADDED o-x/k 3", "ADDED o/k 1")
		nothing := w.watch("/api/v1/namespaces/o/pods?watch=1&resourceVersion=0&fieldSelector=metadata.namespace%3Dp")
		w.set("o/l 101 app=x")
		w.set("o/k 102 app=z")
		w.remove("o/l 103 app=x")
		one.gets("ADDED o/l 101", "DELETED o/k 102", "DELETED o/l 103") // W-103
		name.gets("MODIFIED o/k 102")
		nothing.gets() // W-117
		all.gets("MODIFIED o/l 101", "MODIFIED o/k 102", "DELETED o/l 103")
	})
}

// Too old: one ERROR event in a 200, then the end (W-107).
func TestAWatchThatIsTooOldGetsOneError(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		w.watch("/api/v1/pods?watch=1&resourceVersion=99").ends(EndResourceVersionExpired,
			"ERROR 410 too old resource version: 99 (100)")
		w.watch("/api/v1/pods?watch=1&resourceVersion=100").gets() // exactly at the bound is fine
	})
}

// A plain watch from the future is silent until the present has come there (W-106).
func TestWatchFromFutureRVIsSilentUntilReached(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d)
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=105&allowWatchBookmarks=1")
		w.set("a/x 103")
		w.set("a/x 105")
		time.Sleep(time.Minute)
		p.gets()
		w.set("a/x 106")
		p.gets("MODIFIED a/x 106")
	})
}

// TestAWatchListFromTheFutureGetsAnError shows that a watch-list from the future gets an error
// after three seconds (W-106).
func TestAWatchListFromTheFutureGetsAnError(t *testing.T) {
	const query = "/api/v1/pods?watch=1&resourceVersion=105&sendInitialEvents=true&" +
		"resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		p := w.watch(query)
		time.Sleep(3*time.Second - 1)
		if p.response() != nil {
			t.Fatal("a head without a state")
		}
		time.Sleep(time.Nanosecond)
		p.ends(EndResourceVersionTooLarge, "ERROR 504 Timeout: Too large resource version: 105, current: 100")
	})
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		p := w.watch(query)
		time.Sleep(2 * time.Second)
		w.set("a/y 107")
		p.gets("ADDED a/x 5", "ADDED a/y 107", "BOOKMARK 107 end")
	})
	bubbles(t, func(t *testing.T, d delivery) { // a quiet resource: asking upstream is what moves it
		w := newWorld(t, d, "a/x 5")
		w.oracle.Set(120, nil)
		p := w.watch(query)
		time.Sleep(50 * time.Millisecond)
		p.gets("ADDED a/x 5", "BOOKMARK 120 end")
	})
	// however short the watch is to be: upstream answers after three seconds
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		short := w.watch(query + "&timeoutSeconds=1")
		time.Sleep(3 * time.Second)
		short.ends(EndResourceVersionTooLarge, "ERROR 504 Timeout: Too large resource version: 105, current: 100")
	})
}

// A client may ask for as long a watch as its number holds.
func TestWatchOfCenturies(t *testing.T) {
	m := &Manager{opts: Options{Base: t.Context()}}
	st := m.newStream(plan.Plan{Watch: &plan.WatchPlan{Timeout: math.MaxInt64}}, StreamOptions{})
	defer st.releaseContext()
	if st.scheduleBookmark(now()); st.nextDue().timeLeft() > bookmarkPeriod || st.deadline.timeLeft() < 24*365*time.Hour ||
		st.deadline.after(time.Hour) < st.deadline {
		t.Errorf("a bookmark is due in %s, the end in %s", st.nextDue().timeLeft(), st.deadline.timeLeft())
	}
	if ago := time.Since(st.startedAt()); ago < 0 || ago > time.Minute {
		t.Errorf("it began %s ago", ago)
	}
}

// An upstream that takes its time to say how far it is has not said that it is behind. Its word is
// waited for while the request waits anyway, and then the request is upstream's (W-68, W-106).
func TestTooLargeOnABusyUpstream(t *testing.T) {
	const target = "/api/v1/pods?watch=1&resourceVersion=105&sendInitialEvents=true&" +
		"resourceVersionMatch=NotOlderThan&timeoutSeconds=2"
	const large = "ERROR 504 Timeout: Too large resource version: 105, current: 100"
	t.Run("slow to answer", func(t *testing.T) {
		bubbles(t, func(t *testing.T, d delivery) {
			w := newWorld(t, d, "a/x 5")
			w.oracle.Slow(1400 * time.Millisecond)
			p := w.watch(target)
			time.Sleep(6 * time.Second)
			p.ends(EndResourceVersionTooLarge, large)
		})
	})
	t.Run("silent, and then there", func(t *testing.T) {
		bubbles(t, func(t *testing.T, d delivery) {
			w := newWorld(t, d, "a/x 5")
			w.oracle.Slow(time.Hour)
			p := w.watch("/api/v1/pods?watch=1&resourceVersion=105&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
			time.Sleep(2 * time.Second)
			w.set("a/x 106")
			p.gets("ADDED a/x 106")
			p.goesOn()
		})
	})
	t.Run("silent", func(t *testing.T) {
		bubbles(t, func(t *testing.T, d delivery) {
			w := newWorld(t, d, "a/x 5")
			w.oracle.Slow(time.Hour)
			p := w.watch(target)
			time.Sleep(time.Minute)
			p.unanswered()
		})
	})
}

// At its deadline a watch ends cleanly, without a word (W-112), exactly when it should (W-29).
func TestAWatchEndsCleanlyAtItsDeadline(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=2")
		time.Sleep(2*time.Second - 1)
		p.gets("ADDED a/x 5")
		p.goesOn()
		time.Sleep(time.Nanosecond)
		p.ends(EndTimeout)
	})
}

// Bookmarks come each minute and two seconds before the end, and only if they tell the client
// something (W-111).
func TestBookmarksComeEachMinuteAndBeforeTheEnd(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d)
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=100&allowWatchBookmarks=1&timeoutSeconds=200")
		without := w.watch("/api/v1/pods?watch=1&resourceVersion=100&timeoutSeconds=200")
		time.Sleep(61 * time.Second)
		p.gets() // nothing new
		w.resource().Progress(110, w.resource().Generation())
		time.Sleep(58 * time.Second)
		p.gets()
		time.Sleep(time.Second)
		p.gets("BOOKMARK 110")
		time.Sleep(time.Minute)
		p.gets("BOOKMARK 110") // again
		w.set("a/x 111")
		p.gets("ADDED a/x 111")
		time.Sleep(18*time.Second - 1)
		p.gets()
		time.Sleep(time.Nanosecond)
		p.gets("BOOKMARK 111")
		time.Sleep(2 * time.Second)
		p.ends(EndTimeout)
		without.ends(EndTimeout, "ADDED a/x 111")
	})
}

// Short watches get a bookmark all the same: proofs live on that (W-111, W-211 i).
func TestBookmarksOfShortWatches(t *testing.T) {
	for seconds, want := range map[int]time.Duration{1: 0, 2: 0, 3: time.Second, 4: 2 * time.Second, 5: 3 * time.Second} {
		bubbles(t, func(t *testing.T, d delivery) {
			w := newWorld(t, d)
			w.set("a/x 101")
			p := w.watch(fmt.Sprintf("/api/v1/pods?watch=1&resourceVersion=100&allowWatchBookmarks=1&timeoutSeconds=%d",
				seconds))
			p.gets("ADDED a/x 101")
			if want == 0 {
				time.Sleep(time.Duration(seconds) * time.Second)
				p.ends(EndTimeout)
				return
			}
			time.Sleep(want - 1)
			p.gets()
			time.Sleep(time.Nanosecond)
			p.gets("BOOKMARK 101")
			time.Sleep(2 * time.Second)
			p.ends(EndTimeout)
		})
	}
}

// A gap upstream is closed by its difference, and streams stay open (D5).
func TestARelistClosesTheGapOfOpenStreams(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5", "a/y 6", "a/z 100")
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=0&allowWatchBookmarks=1")
		p.gets("ADDED a/x 5", "ADDED a/y 6", "ADDED a/z 100", "BOOKMARK 100 end")
		without := w.watch("/api/v1/pods?watch=1&resourceVersion=100")
		w.relist(150, "a/y 140", "a/n 130")
		p.gets("DELETED a/x 100", "ADDED a/n 130", "MODIFIED a/y 140", "DELETED a/z 150", "BOOKMARK 150")
		without.gets("DELETED a/x 100", "ADDED a/n 130", "MODIFIED a/y 140", "DELETED a/z 150")
		w.watch("/api/v1/pods?watch=1&resourceVersion=100").gets("DELETED a/x 100", "ADDED a/n 130", "MODIFIED a/y 140",
			"DELETED a/z 150")
		w.watch("/api/v1/pods?watch=1&resourceVersion=120").ends(EndResourceVersionExpired,
			"ERROR 410 too old resource version: 120 (150)")
		w.watch("/api/v1/pods?watch=1&resourceVersion=150").gets()
		w.set("a/y 151")
		p.gets("MODIFIED a/y 151")
	})
}

// A restored etcd voids history: every stream ends with a 410, and so does a resume above the
// present (D5).
func TestARestoredEtcdEndsEveryStream(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5", "a/y 90")
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=0&allowWatchBookmarks=1")
		p.gets("ADDED a/x 5", "ADDED a/y 90", "BOOKMARK 100 end")
		w.relist(80, "a/x 5")
		w.oracle.Set(94, nil) // other resources are above that by then
		p.ends(EndResourceVersionExpired,
			"ERROR 410 too old resource version: 100 (80)")
		w.watch("/api/v1/pods?watch=1&resourceVersion=95").ends(EndResourceVersionExpired,
			"ERROR 410 too old resource version: 95 (80)")
		w.watch("/api/v1/pods?watch=1&resourceVersion=94").gets()
		w.watch("/api/v1/pods?watch=1&resourceVersion=80").gets()
	})
}

// TestWatchesOfAResourceThatIsNotServedEnd shows that watches of a resource that upstream no longer
// serves end as upstream's would. Their next request gets upstream's answer (W-116).
func TestWatchesOfAResourceThatIsNotServedEnd(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=0&allowWatchBookmarks=1")
		future := w.watch("/api/v1/pods?watch=1&resourceVersion=1000")
		p.gets("ADDED a/x 5", "BOOKMARK 100 end")
		w.resource().Close()
		p.ends(EndResourceNotServed)
		future.ends(EndResourceNotServed)
	})
}

// TestAStalledClientIsEvictedAndDelaysNoOther shows that a client that stops reading is evicted
// after the stall timeout, and that other clients are not delayed (D10).
func TestAStalledClientIsEvictedAndDelaysNoOther(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=0")
		other := w.watch("/api/v1/pods?watch=1&resourceVersion=0")
		p.gets("ADDED a/x 5")
		other.gets("ADDED a/x 5")
		p.pause()
		w.set("a/x 101") // is taken by the read under way
		time.Sleep(time.Hour / 2)
		p.goesOn() // nothing is waiting to be taken
		w.set("a/x 102")
		time.Sleep(worldStall - 1)
		p.goesOn()
		other.gets("MODIFIED a/x 101", "MODIFIED a/x 102")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := <-p.reason; got != EndSlowClientStalled {
			t.Errorf("ended: %s", got)
		}
		w.set("a/x 103")
		other.gets("MODIFIED a/x 103")
	})
}

// TestSlowClientsAreCounted shows that a watch whose client takes nothing is counted, however it is
// delivered, until its client goes on or it ends.
func TestSlowClientsAreCounted(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		counted := func(want float64, when string) {
			t.Helper()
			synctest.Wait()
			if got := w.manager.opts.Metrics.slowClients(); got != want {
				t.Errorf("%s: %v watches are counted, want %v", when, got, want)
			}
		}
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=0")
		p.gets("ADDED a/x 5")
		w.set("a/x 101")
		p.gets("MODIFIED a/x 101")
		counted(0, "the client has everything")
		p.pause()
		w.set("a/x 102") // is taken by the read under way
		synctest.Wait()
		w.set("a/x 103")
		time.Sleep(slowWriteTime)
		counted(1, "the client takes nothing")
		p.resume()
		p.gets("MODIFIED a/x 102", "MODIFIED a/x 103")
		counted(0, "the client goes on")
		p.pause()
		w.set("a/x 104")
		synctest.Wait()
		w.set("a/x 105")
		time.Sleep(slowWriteTime)
		counted(1, "the client takes nothing again")
		time.Sleep(2 * worldStall)
		if got := <-p.reason; got != EndSlowClientStalled {
			t.Errorf("ended: %s", got)
		}
		counted(0, "the watch has ended")
	})
}

// TestAnyByteOfASlowClientIsProgress shows that any byte is progress, and that a client that keeps
// old state alive must keep a rate only while memory is short (D10).
func TestAnyByteOfASlowClientIsProgress(t *testing.T) {
	large := func(i int) string { return fmt.Sprintf("a/p%04d %d %s=x", i, i+1, strings.Repeat("l", 300)) }
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d)
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=0")
		p.slowly(time.Second) // 4 KiB a second at most
		synctest.Wait()       // past its initial events
		for i := range 500 {
			w.set(large(i + 100))
		}
		time.Sleep(5 * time.Minute)
		p.goesOn()
		if _, events, _ := p.received(); len(events) != 500 {
			t.Errorf("%d events", len(events))
		}
	})
	bubbles(t, func(t *testing.T, d delivery) {
		var pods []string
		for i := range 2000 {
			pods = append(pods, large(i))
		}
		w := newWorld(t, d)
		w.relist(5000, pods...)
		w.pace = func(int) { time.Sleep(time.Second) }
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=0")
		time.Sleep(worldStall + 20*time.Second)
		synctest.Wait()
		select {
		case got := <-p.reason:
			t.Fatalf("a client that takes 4 KiB/s was ended while memory sufficed: %s", got)
		default:
		}
		w.manager.opts.Eviction.EndSlow()
		time.Sleep(clientconn.RecheckInterval)
		synctest.Wait()
		select {
		case got := <-p.reason:
			if got != EndSlowClientMemory {
				t.Errorf("ended: %s", got)
			}
		default:
			t.Error("it pins the state while memory is short")
		}
	})
}

// Draining ends a stream right after a bookmark (D14), and one without bookmarks just cleanly.
func TestDrainedStream(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=100&allowWatchBookmarks=1")
		fresh := w.watch("/api/v1/pods?watch=1&resourceVersion=0&allowWatchBookmarks=1")
		without := w.watch("/api/v1/pods?watch=1&resourceVersion=100")
		fresh.gets("ADDED a/x 5", "BOOKMARK 100 end")
		w.set("a/x 101")
		w.resource().Progress(110, w.resource().Generation())
		fresh.gets("MODIFIED a/x 101")
		for _, one := range []*testClient{p, fresh, without} {
			one.stream.Stop(EndDrain)
		}
		p.ends(EndDrain, "MODIFIED a/x 101", "BOOKMARK 110")
		fresh.ends(EndDrain, "BOOKMARK 110")
		without.ends(EndDrain, "MODIFIED a/x 101")
	})
}

// TestDepartedAndAborted is about a client that leaves, and a proxy that stops without a drain.
func TestDepartedAndAborted(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d)
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=100")
		other := w.watch("/api/v1/pods?watch=1&resourceVersion=100")
		synctest.Wait()
		p.close()
		w.set("a/x 101")
		if got := <-p.reason; got != EndClientClosed {
			t.Errorf("ended: %s", got)
		}
		other.gets("ADDED a/x 101")
		w.stop(EndAborted.AsError())
		other.ends(EndAborted)
	})
}

// TestQuietStreamKeepsItsPlace shows that the cursor of a watch without bookmarks and without
// events stays near the head: when its feed is dropped, because memory is short, the log has what
// comes next.
func TestQuietStreamKeepsItsPlace(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=100&timeoutSeconds=3600&fieldSelector=metadata.name%3Dz")
		p.gets()
		for i := range 20 {
			time.Sleep(time.Minute)
			w.set(fmt.Sprintf("a/x %d", 101+i))
			synctest.Wait()
			w.resource().SetShortHistory(true)
		}
		if floor := w.resource().Log().Floor(); floor <= 100 {
			t.Fatalf("history still reaches back to %d", floor)
		}
		w.source.Hub.SetLowMemory(true)
		synctest.Wait()
		w.set("a/z 200")
		p.gets("ADDED a/z 200")
	})
}

// TestSlowInitialEventsDelayNoOthers shows that a client that reads its initial events slowly, or
// not at all, does not delay those of others.
func TestSlowInitialEventsDelayNoOthers(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/p 100 app=x")
		for range 3 {
			w.watch("/api/v1/pods?watch=1&resourceVersion=0").pause()
		}
		w.watch("/api/v1/pods?watch=1&resourceVersion=0").gets("ADDED a/p 100")
		w.set("a/p 101 app=x")
		w.watch("/api/v1/pods?watch=1&resourceVersion=0").gets("ADDED a/p 101")
	})
}
