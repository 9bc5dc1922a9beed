package h2

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A kept stream goes on when its handler has returned, until its owner ends it; what the handler
// wrote comes first, and then every offer is a frame.
func TestAKeptStreamOutlivesItsHandler(t *testing.T) {
	t.Parallel()
	kept, contexts := make(chan *Stream, 1), make(chan context.Context, 1)
	c := connect(t, options(func(w http.ResponseWriter, r *http.Request) {
		contexts <- r.Context()
		w.Header().Set("Content-Type", "a/b")
		_, _ = w.Write([]byte("first"))
		s, err := w.(*Response).Keep(nil)
		if err != nil {
			t.Error(err)
		}
		kept <- s
	}))
	c.get(1, "/")
	c.expect("HEADERS 1 status=200 content-type=a/b", `DATA 1 "first"`)
	s, ctx := <-kept, <-contexts
	c.eventually("the handler's return",
		func() bool { return c.locked(func(c *Conn) bool { return c.handlers.running == 0 }) })
	for _, event := range []string{"one", "two"} {
		if n, err := offer(s, []byte(event)); n != 3 || err != nil {
			t.Fatalf("%d bytes taken, %v", n, err)
		}
		c.expect(`DATA 1 "` + event + `"`)
	}
	c.await(ctx.Done(), "the end of the context, with the handler")
	s.End()
	c.expect(`DATA 1 "" END`)
	s.End()
	s.Reset()
	c.quiet()
}

// noted is a Keeper that notes the end of its stream.
type noted chan error

// Ended implements Keeper.
func (n noted) Ended(err error) { n <- err }

// The keeper of a stream learns why it ended, unless it has let go of it.
func TestTheKeeperLearnsWhyItsStreamEnded(t *testing.T) {
	t.Parallel()
	kept, ends := make(chan *Stream, 2), make(noted, 2)
	c := connect(t, options(func(w http.ResponseWriter, _ *http.Request) {
		s, err := w.(*Response).Keep(ends)
		if err != nil {
			t.Error(err)
		}
		kept <- s
	}))
	c.get(1, "/")
	c.until("HEADERS 1")
	<-kept
	c.get(3, "/")
	c.until("HEADERS 3")
	(<-kept).Release()
	c.must(c.framer.WriteRSTStream(3, http2.ErrCodeCancel))
	c.must(c.framer.WriteRSTStream(1, http2.ErrCodeCancel))
	if err := <-ends; !errors.Is(err, ErrReset) {
		t.Errorf("the reason is %v", err)
	}
	if len(ends) > 0 {
		t.Error("a keeper hears of a stream that it has let go of")
	}
}

// Functions of OnEnd are called with the reason when the stream ends, or at once if it has; a
// stopped one is not.
func TestEndFunctionsGetTheReason(t *testing.T) {
	t.Parallel()
	responses := make(chan *Response, 1)
	c := connect(t, options(func(w http.ResponseWriter, r *http.Request) {
		responses <- w.(*Response)
		<-r.Context().Done()
	}))
	c.get(1, "/")
	w := <-responses
	reasons := make(chan error, 3)
	note := func(err error) { reasons <- err }
	stop := w.OnEnd(func(error) { t.Error("a stopped function is called") })
	w.OnEnd(note)
	w.OnEnd(note)
	stop()
	if len(reasons) > 0 {
		t.Errorf("a function is called before the end: %v", <-reasons)
	}
	w.stream.Reset()
	w.OnEnd(note)()
	for range 3 {
		if err := <-reasons; !errors.Is(err, errDone) {
			t.Errorf("the reason is %v", err)
		}
	}
}

// The end of a stream is its context's, and says why.
func TestWhyAStreamEnded(t *testing.T) {
	t.Parallel()
	contexts := make(chan context.Context, 3)
	c := connect(t, options(func(w http.ResponseWriter, r *http.Request) {
		contexts <- r.Context()
		_ = w.(*Response).FlushError()
		<-r.Context().Done()
	}))
	ended := func(ctx context.Context, why error) {
		t.Helper()
		c.await(ctx.Done(), "the end of the context")
		if cause := context.Cause(ctx); !errors.Is(cause, why) {
			t.Errorf("the cause is %v, want %v", cause, why)
		}
	}
	c.get(1, "/")
	c.until("HEADERS 1")
	one := <-contexts
	c.get(3, "/")
	c.until("HEADERS 3")
	c.must(c.framer.WriteRSTStream(1, http2.ErrCodeCancel))
	ended(one, ErrReset)
	_ = c.net.Close()
	ended(<-contexts, errGone)
}

// A kept stream that ends while its client is still sending is reset with NO_ERROR, so that the
// client stops sending.
func TestKeepOfAnOpenRequest(t *testing.T) {
	t.Parallel()
	kept := make(chan *Stream, 1)
	c := connect(t, options(func(w http.ResponseWriter, _ *http.Request) {
		s, _ := w.(*Response).Keep(nil)
		kept <- s
	}))
	c.head(1, false, ":method", "POST")
	c.until("HEADERS 1")
	s := <-kept
	c.eventually("the handler's return",
		func() bool { return c.locked(func(c *Conn) bool { return c.handlers.running == 0 }) })
	c.data(1, text(5000), false) // no handler is left to read it
	c.expect("WINDOW_UPDATE 0 5000")
	s.End()
	c.expect(`DATA 1 "" END`, "RST_STREAM 1 NO_ERROR")
}

// Streams are limited, however many of them are kept; their handlers are over, and others may run.
func TestKeptStreamsAreStreams(t *testing.T) {
	t.Parallel()
	kept := make(chan *Stream, 10)
	opts := options(func(w http.ResponseWriter, _ *http.Request) {
		s, _ := w.(*Response).Keep(nil)
		kept <- s
	})
	opts.MaxStreams = 2
	c := connect(t, opts)
	for _, id := range []uint32{1, 3} {
		c.get(id, "/")
		c.until("HEADERS")
	}
	c.get(5, "/")
	c.expect("RST_STREAM 5 PROTOCOL_ERROR")
	(<-kept).Reset()
	c.until("RST_STREAM")
	c.get(7, "/")
	c.expect("HEADERS 7 status=200")
}

// A panic resets the stream, also one that was to be kept, and nothing else.
func TestAPanicResetsItsStreamAlone(t *testing.T) {
	t.Parallel()
	c := connect(t, options(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/kept":
			_, _ = w.(*Response).Keep(nil)
			panic("a bug")
		case "/begun":
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/status":
			w.WriteHeader(99)
		}
	}))
	c.get(1, "/kept")
	c.expect("HEADERS 1 status=200", "RST_STREAM 1 INTERNAL_ERROR")
	c.get(3, "/begun")
	c.expect("HEADERS 3 status=200", "RST_STREAM 3 INTERNAL_ERROR")
	c.get(5, "/status")
	c.expect("RST_STREAM 5 INTERNAL_ERROR")
	c.get(7, "/")
	c.expect("HEADERS 7 status=200 content-length=0 END")
}

// The Write of a handler that waits for room returns when its stream ends, and leaves no data in
// the outbox of a client that does not read.
func TestEndOfWhoWaits(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	c := connect(t, options(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 10_000)); err != nil {
				ended <- err
				return
			}
		}
	}), http2.Setting{ID: http2.SettingInitialWindowSize, Val: maxWindow})
	c.must(c.framer.WriteWindowUpdate(0, 1<<30))
	for i := range 100 {
		id := uint32(2*i + 1)
		c.get(id, "/")
		c.eventually("waiting", func() bool {
			return c.locked(func(c *Conn) bool { s := c.streams[id]; return s != nil && s.waiting })
		})
		c.must(c.framer.WriteRSTStream(id, http2.ErrCodeCancel))
		if err := <-ended; !errors.Is(err, ErrReset) {
			t.Fatal(err)
		}
	}
	if c.locked(func(c *Conn) bool { return len(c.outbox.waiting) > 0 }) {
		t.Error("streams that have ended wait for room")
	}
}

// A deadline for writing ends a stream that waits, or at once if it has passed; and it holds for
// what was held back too.
func TestWriteDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, options(func(w http.ResponseWriter, r *http.Request) {
			control, at := http.NewResponseController(w), time.Now().Add(20*time.Millisecond)
			switch r.URL.Path {
			case "/past":
				at = time.Unix(1, 0)
			case "/never":
				_ = control.SetWriteDeadline(at)
				at = time.Time{}
			}
			_ = control.SetWriteDeadline(at)
			switch r.URL.Path {
			case "/long":
				_, _ = w.Write(make([]byte, 10_000))
			case "/never":
				time.Sleep(50 * time.Millisecond)
			default:
				_, _ = w.Write([]byte("held"))
			}
		}), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		c.get(1, "/long")
		c.until("HEADERS 1")
		c.expect("RST_STREAM 1 INTERNAL_ERROR")
		c.get(3, "/past")
		c.expect("RST_STREAM 3 INTERNAL_ERROR")
		c.get(5, "/held")
		c.until("HEADERS 5")
		c.expect("RST_STREAM 5 INTERNAL_ERROR")
		c.get(7, "/never")
		c.expect("HEADERS 7 status=200 content-length=0 END")
	})
}

// An event costs no memory.
func TestOfferAllocates(t *testing.T) {
	allowed := 0.
	if raceDetector || nonblocking {
		allowed = 4 // a sync.Pool then forgets things on purpose, and a pipe needs goroutines
	}
	kept := make(chan *Stream, 1)
	c := connect(t, options(func(w http.ResponseWriter, _ *http.Request) {
		s, _ := w.(*Response).Keep(nil)
		kept <- s
	}), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	c.must(c.framer.WriteWindowUpdate(0, 1<<30))
	c.get(1, "/")
	c.until("HEADERS 1")
	s, event, got := <-kept, make([]byte, 500), make([]byte, 509)
	if allocs := testing.AllocsPerRun(1000, func() {
		if n, err := s.Offer(event); n != len(event) || err != nil {
			t.Fatalf("%d bytes taken, %v", n, err)
		}
		s.Conn().Flush()
		for rest := got; len(rest) > 0; {
			n, err := c.net.Read(rest)
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
	}); allocs > allowed {
		t.Errorf("%v allocations for an event", allocs)
	}
}
