package backfill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/object"
)

// fakeHistory is an upstream that remembers what it did, and tells of it.
type fakeHistory struct {
	*world
	coordinator *Coordinator

	mu       sync.Mutex
	events   []object.Event
	state    map[string]*object.Object
	oldest   uint64 // a watch from before is refused
	nameless bool   // its refusals do not say so
	watches  []openedWatch
	begins   int
	failing  error         // of Begin
	silent   bool          // no bookmarks
	pause    time.Duration // before each event
	most     int           // events of one watch, 0: all
}

// openedWatch is a watch that was opened.
type openedWatch struct {
	selector string
	from     uint64
}

// newStory begins at resourceVersion 100. The log begins when the test says so: see begin.
func newStory(t testing.TB) *fakeHistory {
	w := &world{TB: t, clock: time.Unix(1e9, 0), rv: 100}
	return &fakeHistory{world: w, state: map[string]*object.Object{}, oldest: 100}
}

// begin lets the mirror begin at the present.
func (s *fakeHistory) begin(limits cache.HistoryLimits, watches int) {
	s.Helper()
	s.resource = cache.New(pods, limits, func() time.Time { return s.clock })
	s.hub = fanout.NewHub(s.resource)
	s.list()
	s.coordinator = New(s.hub, s, NewWatchLimit(watches))
}

// list has the mirror read the state: its first one, or behind a gap.
func (s *fakeHistory) list() {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*object.Object
	for _, o := range s.state {
		all = append(all, o)
	}
	s.must(s.resource.Replace(all, s.rv))
}

// put and remove happen upstream; the mirror receives the event only if follows.
func (s *fakeHistory) put(key, app string, follows bool) { s.putPadded(key, app, 0, follows) }

func (s *fakeHistory) putPadded(key, app string, pad int, follows bool) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	o := s.pod(key, app, s.rv, pad)
	s.events = append(s.events, object.Event{New: o, Old: s.state[key], RV: s.rv})
	s.state[key] = o
	if follows {
		s.must(s.resource.Update(o))
	}
}

func (s *fakeHistory) remove(key string, follows bool) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.state[key]
	if old == nil {
		return
	}
	s.rv++
	s.events = append(s.events, object.Event{Old: old, RV: s.rv})
	delete(s.state, key)
	if follows {
		s.must(s.resource.Delete(s.pod(key, "", s.rv, 0)))
	}
}

// present is how far upstream is.
func (s *fakeHistory) present() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rv
}

// told is what upstream's own watch from a resourceVersion tells.
func (s *fakeHistory) told(sel object.Selector, from uint64, enc object.Encoding) []string {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var run []byte
	for i := range s.events {
		e := &s.events[i]
		if t, o, seen := sel.EventFor(e); seen && e.RV > from {
			run = made(fanout.AppendEvent(run, enc, t, o, e.RV))
		}
	}
	return decode(s, run, enc)
}

// Begin implements Past.
func (s *fakeHistory) Begin(ctx context.Context) (uint64, HistoryWatch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begins++
	if s.failing != nil {
		return 0, nil, s.failing
	}
	return s.rv, &fakeWatch{story: s}, ctx.Err()
}

// fakeWatch is one watch of a fakeHistory.
type fakeWatch struct {
	story  *fakeHistory
	ctx    context.Context
	sel    object.Selector
	passed uint64
	until  time.Time
	told   int
	begun  bool
	marked bool
}

func (c *fakeWatch) Watch(ctx context.Context, sel object.Selector, from uint64) error {
	s := c.story
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, openedWatch{sel.Key(), from})
	c.ctx, c.sel, c.passed, c.until = ctx, sel, from, time.Now().Add(3*time.Second)
	return nil
}

func (c *fakeWatch) Next() (object.Type, *object.Object, uint64, error) {
	s := c.story
	for {
		s.mu.Lock()
		e, pause, err := c.next()
		bookmark := s.rv
		silent := s.silent
		s.mu.Unlock()
		switch {
		case err != nil:
			return 0, nil, 0, err
		case e != nil:
			if !c.sleep(pause) {
				return 0, nil, 0, c.ctx.Err()
			}
			c.passed = e.RV
			if t, o, seen := c.sel.EventFor(e); seen {
				c.told++
				raw, err := pods.Parse(o.AppendAt(nil, fmt.Sprint(e.RV))) // what a watch carries
				return t, raw, e.RV, err
			}
			continue
		case !silent && !c.marked && time.Until(c.until) <= 2*time.Second:
			c.marked = true
			c.passed = bookmark
			return 0, nil, bookmark, nil
		case !time.Now().Before(c.until):
			return 0, nil, 0, io.EOF
		case !c.sleep(100 * time.Millisecond):
			return 0, nil, 0, c.ctx.Err()
		}
	}
}

// next is the next event that upstream has.
func (c *fakeWatch) next() (*object.Event, time.Duration, error) {
	s := c.story
	if !c.begun && c.passed < s.oldest {
		message := fmt.Sprintf("too old resource version: %d (%d)", c.passed, s.oldest)
		if s.nameless {
			message = forgotten
		}
		return nil, 0, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired, Message: message,
		}}
	}
	c.begun = true
	if s.most > 0 && c.told >= s.most {
		return nil, 0, io.EOF
	}
	for i := range s.events {
		if s.events[i].RV > c.passed {
			return &s.events[i], s.pause, nil
		}
	}
	return nil, 0, nil
}

func (c *fakeWatch) sleep(d time.Duration) bool {
	if d == 0 {
		return c.ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-c.ctx.Done():
		return false
	}
}

func (c *fakeWatch) Close() {}

// resumption is what one client got.
type resumption struct {
	events []string
	err    error
	joined bool

	overtaken uint64 // what the client is complete through, if the log went on before the client read it; 0: it did not
}

// resumes tells a client everything from a resourceVersion up to what the log has when it gets
// there. take is called with every run of frames.
func (s *fakeHistory) resumes(ctx context.Context, rv uint64, sel object.Selector, enc object.Encoding, take func()) (
	r resumption) {
	f, err := s.coordinator.Join(ctx, "", rv, sel)
	if err != nil {
		return resumption{err: err}
	}
	var cursor *fanout.Cursor
	if f == nil {
		if cursor, err = s.hub.ViewFor("").CursorFromRV(rv, sel, enc); err != nil {
			return resumption{err: err}
		}
	} else {
		defer f.Close()
	}
	for r.joined = f != nil; cursor == nil; {
		var run []byte
		if run, cursor, err = f.Next(ctx, enc); err != nil {
			r.err = err
			return r
		}
		r.events = append(r.events, decode(s, run, enc)...)
		take()
	}
	defer cursor.Close()
	run, err := drain(cursor)
	r.events, r.err = append(r.events, decode(s, run, enc)...), err
	var expired *cache.ExpiredError
	if errors.As(err, &expired) && expired.IsGap() {
		r.overtaken = expired.RequestedRV
	}
	return r
}

func (s *fakeHistory) check(r resumption, want []string) {
	s.Helper()
	if r.err != nil || !slices.Equal(r.events, want) {
		s.Errorf("told %q, then %v\nwant %q", r.events, r.err, want)
	}
}

// forgotten are the words of an API server that has no watch cache.
const forgotten = "The resourceVersion for the provided watch is too old."

func (s *fakeHistory) checkExpired(r resumption, asked, oldest uint64) {
	s.Helper()
	var expired *cache.ExpiredError
	if len(r.events) > 0 || !errors.As(r.err, &expired) || expired.RequestedRV != asked || expired.OldestRV != oldest ||
		s.nameless != (expired.Message == forgotten) {
		s.Errorf("told %q, then %v; want expired: %d (%d)", r.events, r.err, asked, oldest)
	}
}

func (s *fakeHistory) checkWatches(want ...openedWatch) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.watches, want) {
		s.Errorf("watches %v, want %v", s.watches, want)
	}
}

func nothing() {}

// inBubble runs a test in which time passes only when all goroutines wait.
func inBubble(t *testing.T, f func(t *testing.T, s *fakeHistory)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t)
		f(t, s)
		if s.coordinator != nil {
			s.coordinator.Close()
			if held := s.coordinator.limit.heldBytes.Load(); held != 0 {
				t.Errorf("%d bytes are held", held)
			}
		}
	})
}

var all = openedWatch{selector: object.Selector{}.Key()}

func allFrom(rv uint64) openedWatch { return openedWatch{all.selector, rv} }

// A quiet resource: the bookmark says that nothing is missing.
func TestBackfillEndsAtABookmark(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		s.put("n/a", "x", false) // 101
		s.put("n/b", "x", false)
		s.remove("n/a", false)
		s.put("n/c", "x", false) // 104
		s.begin(plenty, 1)
		began := time.Now()
		r := s.resumes(t.Context(), 101, everything, chunked, nothing)
		s.check(r, []string{"ADDED n/b 102", "DELETED n/a 103", "ADDED n/c 104"})
		s.checkWatches(allFrom(101))
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if r := s.resumes(t.Context(), 104, everything, chunked, nothing); r.joined {
			t.Error("asked upstream for what the log has")
		}
	})
}

// A busy one: the first event that the log has.
func TestBackfillEndsAtAnEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		s.silent = true
		s.put("n/a", "x", false) // 101
		s.put("n/b", "x", false)
		s.begin(plenty, 1)
		s.put("n/c", "x", true) // 103
		s.put("n/d", "x", true)
		s.check(s.resumes(t.Context(), 100, everything, chunked, nothing),
			[]string{"ADDED n/a 101", "ADDED n/b 102", "ADDED n/c 103", "ADDED n/d 104"})
		s.check(s.resumes(t.Context(), 101, namespace("other"), chunked, nothing), nil)
	})
}

// Clients that select by name and namespace alone share a watch of all objects, from the smallest
// of their resourceVersions.
func TestBackfillIsShared(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		for i := range 50 {
			s.put(fmt.Sprintf("n%d/p%d", i%3, i), "x", false) // 101 … 150
		}
		s.begin(plenty, 1)
		release := s.hold(t)
		var clients sync.WaitGroup
		for i := range uint64(40) {
			sel := []object.Selector{everything, namespace("n1"), object.NewSelector("n2", "p5", nil, nil),
				namespace("none")}[i%4]
			clients.Go(func() {
				s.check(s.resumes(t.Context(), 140-i, sel, bookmarks, nothing), s.told(sel, 140-i, bookmarks))
			})
		}
		synctest.Wait()
		release()
		clients.Wait()
		s.checkWatches(allFrom(101))
	})
}

// A client that joins a running backfill gets all of its events; a client that needs earlier ones
// has another backfill.
func TestBackfillIsJoined(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		s.pause = 10 * time.Millisecond
		for i := range 50 {
			s.put(fmt.Sprintf("n/p%d", i), "x", false) // 101 … 150
		}
		s.begin(plenty, 4)
		var clients sync.WaitGroup
		for _, from := range []uint64{110, 120, 105, 149} {
			clients.Go(func() {
				s.check(s.resumes(t.Context(), from, everything, chunked, nothing), s.told(everything, from, chunked))
			})
			time.Sleep(100 * time.Millisecond)
		}
		clients.Wait()
		s.checkWatches(allFrom(110), allFrom(105))
		// A backfill that has ended can be read for a while, by clients that need no more than it has.
		s.check(s.resumes(t.Context(), 107, everything, chunked, nothing), s.told(everything, 107, chunked))
		s.checkWatches(allFrom(110), allFrom(105))
		s.check(s.resumes(t.Context(), 104, everything, chunked, nothing), s.told(everything, 104, chunked))
		s.checkWatches(allFrom(110), allFrom(105), allFrom(104))
		time.Sleep(2 * replayTimeout)
		s.check(s.resumes(t.Context(), 107, everything, chunked, nothing), s.told(everything, 107, chunked))
		s.checkWatches(allFrom(110), allFrom(105), allFrom(104), allFrom(107))
	})
}

// Only upstream knows what objects were: other selectors are its own to apply, each by a watch of
// its own.
func TestBackfillOfSelectors(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		s.put("n/a", "x", false) // 101
		s.put("n/b", "y", false)
		s.put("n/a", "y", false) // leaves x
		s.put("n/b", "x", false)
		s.put("m/a", "x", false) // 105
		s.remove("n/b", false)
		s.begin(plenty, 8)
		var clients sync.WaitGroup
		for _, sel := range []object.Selector{app("x"), app("x"), app("y"), node("x"), except("x")} {
			clients.Go(func() {
				s.check(s.resumes(t.Context(), 101, sel, chunked, nothing), s.told(sel, 101, chunked))
			})
		}
		clients.Wait()
		slices.SortFunc(s.watches, func(a, b openedWatch) int {
			return slices.Compare([]byte(a.selector), []byte(b.selector))
		})
		want := []openedWatch{{app("x").Key(), 101}, {app("y").Key(), 101}, {except("x").Key(), 101}, {node("x").Key(), 101}}
		slices.SortFunc(want, func(a, b openedWatch) int { return slices.Compare([]byte(a.selector), []byte(b.selector)) })
		s.checkWatches(want...)
		if got := s.told(app("x"), 101, chunked); got[0] != "DELETED n/a 103" {
			t.Errorf("no transition was tested: %q", got)
		}
	})
}

// Upstream says how far back it remembers: a client that resumes from before is refused, all others
// resume.
func TestBackfillRefusesWhomUpstreamRefuses(t *testing.T) {
	for _, nameless := range []bool{false, true} {
		inBubble(t, func(t *testing.T, s *fakeHistory) {
			s.nameless = nameless
			for i := range 20 {
				s.put(fmt.Sprintf("n/p%d", i), "x", false) // 101 … 120
			}
			s.begin(plenty, 1)
			s.oldest = 110
			hold := s.hold(t)
			var clients sync.WaitGroup
			for _, from := range []uint64{103, 109, 110, 115} {
				clients.Go(func() {
					r := s.resumes(t.Context(), from, everything, chunked, nothing)
					switch {
					case from >= 110:
						s.check(r, s.told(everything, from, chunked))
					case nameless:
						s.checkExpired(r, from, from+1)
					default:
						s.checkExpired(r, from, 110)
					}
				})
			}
			synctest.Wait()
			hold()
			clients.Wait()
			if nameless {
				s.checkWatches(allFrom(103), allFrom(109), allFrom(110))
			} else {
				s.checkWatches(allFrom(103), allFrom(110))
			}
		})
	}
}

// hold takes the only turn, so that all clients that arrive until it is given back wait together.
func (s *fakeHistory) hold(t *testing.T) (release func()) {
	if err := s.coordinator.limit.acquire(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	return func() { s.coordinator.limit.release("") }
}

// What upstream forgets between two watches is not sent.
func TestBackfillIsForgottenOnTheWay(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		s.most, s.pause = 2, 500*time.Millisecond
		for i := range 6 {
			s.put(fmt.Sprintf("n/p%d", i), "x", false) // 101 … 106
		}
		s.begin(plenty, 1)
		r := s.resumes(t.Context(), 100, everything, chunked, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.oldest = 104
		})
		var expired *cache.ExpiredError
		if !slices.Equal(r.events, s.told(everything, 100, chunked)[:2]) || !errors.As(r.err, &expired) ||
			expired.OldestRV != 104 {
			t.Errorf("told %q, then %v", r.events, r.err)
		}
	})
}

// The log may lose its first entries while a backfill runs: then the backfill goes on further.
func TestBackfillFollowsTheFloor(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		s.pause = 10 * time.Millisecond
		for i := range 20 {
			s.put(fmt.Sprintf("n/p%d", i), "x", false) // 101 … 120
		}
		s.begin(cache.HistoryLimits{HistoryBytes: 8 << 10}, 1)
		floor := s.resource.Log().Floor()
		var clients sync.WaitGroup
		for i := range uint64(5) {
			clients.Go(func() {
				r := s.resumes(t.Context(), 101+i, everything, chunked, nothing)
				if want := s.told(everything, 101+i, chunked); r.err != nil ||
					!slices.Equal(r.events, want[:min(len(want), len(r.events))]) || len(r.events) < len(want)-3 {
					t.Errorf("told %q, then %v\nwant %q", r.events, r.err, want)
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		for i := range 10 {
			s.putPadded(fmt.Sprintf("n/q%d", i), "x", 2<<10, true)
			time.Sleep(20 * time.Millisecond)
		}
		clients.Wait()
		if s.resource.Log().Floor() == floor {
			t.Error("the floor did not move")
		}
	})
}

// Inside a gap of the mirror the log knows nothing, but upstream may.
func TestBackfillInsideASeam(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		s.put("n/a", "x", false)
		s.begin(plenty, 1)
		s.put("n/b", "x", true) // 102: P
		s.put("n/came-and-went", "x", false)
		s.put("n/c", "x", false)
		s.remove("n/came-and-went", false)
		s.remove("n/a", false) // 106
		s.list()
		s.put("n/d", "x", true)
		s.check(s.resumes(t.Context(), 103, everything, chunked, nothing), s.told(everything, 103, chunked))
		s.checkWatches(allFrom(103))
		r := s.resumes(t.Context(), 102, everything, chunked, nothing)
		if r.joined || r.events[0] != "DELETED n/a 102" {
			t.Errorf("a resume before the seam received %q", r.events)
		}
		time.Sleep(2 * replayTimeout)
		s.oldest = 105
		s.checkExpired(s.resumes(t.Context(), 103, everything, chunked, nothing), 103, 105)
	})
}

// A void history cannot be continued by what upstream remembers now.
func TestBackfillOfAVoidHistory(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		s.put("n/a", "x", false) // 101
		s.put("n/b", "x", false)
		s.put("n/c", "x", false)
		s.begin(plenty, 1)
		joined := make(chan resumption, 1)
		s.silent = true
		go func() { joined <- s.resumes(t.Context(), 101, everything, chunked, nothing) }()
		synctest.Wait()
		s.mu.Lock()
		delete(s.state, "n/c")
		s.events, s.rv = s.events[:2], 102
		s.mu.Unlock()
		s.list()
		s.silent = false
		for i := range 5 {
			s.put(fmt.Sprint("n/new", i), "x", true)
		}
		if r := <-joined; r.err == nil {
			t.Errorf("a client of two histories received %q", r.events)
		}
		opened := len(s.watches)
		s.checkExpired(s.resumes(t.Context(), 101, everything, chunked, nothing), 101, 102)
		if len(s.watches) != opened {
			t.Error("a request went upstream")
		}
		s.mu.Lock()
		s.oldest = 0
		s.mu.Unlock()
	})
}

// More watches than may be open at a time wait for their turn, and not forever.
func TestBackfillLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		s.put("n/a", "x", false)
		s.put("n/b", "x", false)
		s.begin(plenty, 2)
		var clients sync.WaitGroup
		for i := range 6 {
			sel := app(fmt.Sprint(i))
			clients.Go(func() { s.check(s.resumes(t.Context(), 100, sel, chunked, nothing), nil) })
		}
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			if open, _ := s.coordinator.Watches(); open > 2 {
				t.Fatalf("%d watches are open", open)
			}
		}
		clients.Wait()
		if _, opened := s.coordinator.Watches(); opened != 6 {
			t.Errorf("%d watches were opened", opened)
		}
		s.hold(t)
		release := s.hold(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r := s.resumes(ctx, 100, everything, chunked, nothing); !errors.Is(r.err, ErrBusy) {
			t.Errorf("told %q, then %v", r.events, r.err)
		}
		release()
		s.check(s.resumes(t.Context(), 100, everything, chunked, nothing), s.told(everything, 100, chunked))
	})
}

// A client that takes nothing delays no other for long, nor holds much memory; it goes on by itself
// or reconnects later.
func TestBackfillOfASlowClient(t *testing.T) {
	for _, takes := range []time.Duration{time.Hour, 20 * time.Second, 700 * time.Millisecond} {
		inBubble(t, func(t *testing.T, s *fakeHistory) {
			for i := range 24 {
				s.putPadded(fmt.Sprintf("n/p%d", i), "x", 32<<10, false) // 768 KiB in all
			}
			s.begin(plenty, 4)
			s.coordinator.limit.maxWatchBytes = 512 << 10
			hold := []func(){s.hold(t), s.hold(t), s.hold(t), s.hold(t)}
			slow := make(chan resumption, 1)
			go func() {
				slow <- s.resumes(t.Context(), 100, everything, chunked, func() { time.Sleep(takes) })
			}()
			var fast sync.WaitGroup
			for range 3 {
				fast.Go(func() {
					began := time.Now()
					s.check(s.resumes(t.Context(), 100, everything, chunked, nothing), s.told(everything, 100, chunked))
					if took := time.Since(began); took > 10*time.Second {
						t.Errorf("took %v", took)
					}
				})
			}
			synctest.Wait()
			for _, release := range hold {
				release()
			}
			watched := make(chan struct{})
			go func() {
				for {
					select {
					case <-watched:
						return
					case <-time.After(50 * time.Millisecond):
						if held := s.coordinator.limit.heldBytes.Load(); held > 4*(512<<10+64<<10) {
							t.Errorf("%d bytes are held", held)
						}
					}
				}
			}()
			fast.Wait()
			r := <-slow
			close(watched)
			want := s.told(everything, 100, chunked)
			if r.err != nil && !errors.Is(r.err, ErrBehind) || !slices.Equal(r.events, want[:len(r.events)]) ||
				len(r.events) == 0 {
				t.Errorf("the slow one received %d events, then %v", len(r.events), r.err)
			}
			if behind := r.err != nil; behind != (takes > replayTimeout) || !behind && len(r.events) != len(want) {
				t.Errorf("the client that takes %v received %d of %d events, then %v", takes, len(r.events), len(want), r.err)
			}
		})
	}
}

// All resources together hold no more than one bound.
func TestBackfillBytesOfAll(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		for i := range 40 {
			s.putPadded(fmt.Sprintf("n/p%d", i), fmt.Sprint(i%8), 32<<10, false)
		}
		s.begin(plenty, 8)
		s.coordinator.limit.maxTotalBytes, s.coordinator.limit.minWatchBytes = 128<<10, 0
		var clients sync.WaitGroup
		for i := range 8 {
			clients.Go(func() {
				r := s.resumes(t.Context(), 100, app(fmt.Sprint(i)), chunked, func() { time.Sleep(100 * time.Millisecond) })
				if want := s.told(app(fmt.Sprint(i)), 100, chunked); r.err != nil && !errors.Is(r.err, ErrBehind) ||
					!slices.Equal(r.events, want[:len(r.events)]) {
					t.Errorf("told %q, then %v", r.events, r.err)
				}
			})
		}
		for range 20 {
			time.Sleep(50 * time.Millisecond)
			if held := s.coordinator.limit.heldBytes.Load(); held > 128<<10+8*(36<<10) {
				t.Errorf("%d bytes are held", held)
			}
		}
		clients.Wait()
	})
}

// While upstream is unreachable, clients wait; they resume when it answers.
func TestBackfillSurvivesUpstream(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		s.most = 3
		for i := range 10 {
			s.put(fmt.Sprintf("n/p%d", i), "x", false)
		}
		s.begin(plenty, 1)
		s.failing = errors.New("connection refused")
		done := make(chan resumption, 1)
		go func() { done <- s.resumes(t.Context(), 101, everything, chunked, nothing) }()
		time.Sleep(time.Minute)
		s.mu.Lock()
		begins := s.begins
		s.failing = nil
		s.mu.Unlock()
		if begins > 20 || begins < 3 {
			t.Errorf("%d requests went upstream in a minute", begins)
		}
		s.check(<-done, s.told(everything, 101, chunked))

		time.Sleep(2 * replayTimeout)
		s.failing = errors.New("connection refused")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if r := s.resumes(ctx, 101, everything, chunked, nothing); !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("told %q, then %v", r.events, r.err)
		}
		s.failing = apierrors.NewBadRequest("unable to find labels")
		s.checkExpired(s.resumes(t.Context(), 101, everything, chunked, nothing), 101, 110)
		s.failing = nil
		time.Sleep(2 * replayTimeout)
		s.mu.Lock()
		s.rv = 105 // behind its own word
		s.mu.Unlock()
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if r := s.resumes(ctx, 101, everything, chunked, nothing); !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("told %q, then %v", r.events, r.err)
		}
	})
}

// Where upstream says neither what happened nor that nothing did, nothing may be claimed.
func TestBackfillFromAMuteUpstream(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		s.silent = true
		s.put("n/a", "x", false)
		s.put("n/b", "x", false)
		s.begin(plenty, 1)
		s.checkExpired(s.resumes(t.Context(), 101, app("none"), chunked, nothing), 101, 102)
		s.checkWatches(slices.Repeat([]openedWatch{{app("none").Key(), 101}}, silentWatchLimit)...)
	})
}

// A client whose backfill is under way at the end, and a client that arrives then, has expired.
func TestBackfillsClose(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fakeHistory) {
		s.silent = true
		s.put("n/a", "x", false)
		s.put("n/b", "x", false)
		s.begin(plenty, 1)
		done := make(chan resumption, 1)
		go func() { done <- s.resumes(t.Context(), 101, app("none"), chunked, nothing) }()
		synctest.Wait()
		s.coordinator.Close()
		s.checkExpired(<-done, 101, 102)
		s.checkExpired(s.resumes(t.Context(), 101, everything, chunked, nothing), 101, 102)
	})
}

// Whatever happened, wherever the log begins, and wherever clients resume from, together or not: a
// client gets what upstream's own watch would have sent.
func TestBackfillIsUpstreamsOwnWatch(t *testing.T) {
	for seed := range uint64(25) {
		inBubble(t, func(t *testing.T, s *fakeHistory) {
			random := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- reproducible
			act := func(follows bool) {
				key := fmt.Sprintf("n%d/p%d", random.IntN(3), random.IntN(6))
				if random.IntN(4) == 0 {
					s.remove(key, follows)
				} else {
					s.put(key, fmt.Sprint(random.IntN(3)), follows)
				}
			}
			for range 20 + random.IntN(60) {
				act(false)
			}
			s.most, s.pause = random.IntN(20), time.Duration(random.IntN(30))*time.Millisecond
			limits := plenty
			if random.IntN(2) == 0 {
				limits = cache.HistoryLimits{HistoryBytes: 16 << 10}
			}
			s.begin(limits, 1+random.IntN(4))
			type client struct {
				from uint64
				sel  object.Selector
				got  resumption
			}
			selectors := []object.Selector{everything, namespace("n1"), object.NewSelector("n2", "p3", nil, nil), app("1"),
				node("2"), except("0")}
			clients := make([]*client, 25)
			var all sync.WaitGroup
			for i := range clients {
				c := &client{from: 100 + random.Uint64N(s.present()-99), sel: selectors[random.IntN(len(selectors))]}
				after := time.Duration(random.IntN(1500)) * time.Millisecond
				clients[i] = c
				all.Go(func() {
					time.Sleep(after)
					c.got = s.resumes(t.Context(), c.from, c.sel, chunked, nothing)
					// a small log went on before it was read: the client reconnects
					for told := c.got.events; c.got.overtaken > 0; told = c.got.events {
						c.got = s.resumes(t.Context(), c.got.overtaken, c.sel, chunked, nothing)
						c.got.events = slices.Concat(told, c.got.events)
					}
				})
			}
			for range 40 {
				time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
				act(true)
			}
			all.Wait()
			for _, c := range clients {
				want := s.told(c.sel, c.from, chunked)
				if c.got.err != nil || !slices.Equal(c.got.events, want[:min(len(want), len(c.got.events))]) {
					t.Errorf("seed %d: from %d %s\ntold %q, then %v\nwant %q", seed, c.from, c.sel.Key(), c.got.events, c.got.err,
						want)
				}
			}
		})
	}
}
