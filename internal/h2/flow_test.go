package h2

import (
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// writes answers with n bytes.
func writes(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, n)) }
}

// An answer is sent as far as the stream's window allows, and goes on as soon as that grows.
func TestAnswersKeepToTheWindowOfTheirStream(t *testing.T) {
	t.Parallel()
	c := connect(t, options(writes(10_000)), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	c.get(1, "/")
	c.until("HEADERS 1")
	c.expect("DATA 1 (1000)")
	c.quiet()
	c.must(c.framer.WriteWindowUpdate(1, 500))
	c.expect("DATA 1 (500)")
	c.must(c.framer.WriteWindowUpdate(1, 100_000))
	c.expect("DATA 1 (8500)", `DATA 1 "" END`)
}

// All streams share the connection's window.
func TestStreamsShareTheWindowOfTheConnection(t *testing.T) {
	t.Parallel()
	c := connect(t, options(writes(40_000)), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	c.get(1, "/")
	c.until("HEADERS 1")
	c.reads(1, 40_000)
	c.expect(`DATA 1 "" END`)
	c.get(3, "/")
	c.until("HEADERS 3")
	c.reads(3, firstWindow-40_000)
	c.quiet()
	c.must(c.framer.WriteWindowUpdate(0, 10))
	c.expect(`DATA 3 "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"`)
	c.must(c.framer.WriteWindowUpdate(0, 1<<20))
	c.reads(3, 80_000-firstWindow-10)
	c.expect(`DATA 3 "" END`)
}

// Settings change the windows of the streams that there are, down below nothing; what is then given
// back counts from there.
func TestSettingsChangeWindows(t *testing.T) {
	t.Parallel()
	c := connect(t, options(writes(10_000)), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	c.get(1, "/")
	c.until("HEADERS 1")
	c.expect("DATA 1 (1000)")
	window := func(n uint32) {
		c.must(c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: n}))
		c.until("SETTINGS ack")
	}
	window(100) // 900 too many are out
	c.must(c.framer.WriteWindowUpdate(1, 900))
	c.quiet()
	c.must(c.framer.WriteWindowUpdate(1, 1))
	c.expect(`DATA 1 "\x00"`)
	window(300)
	c.expect("DATA 1 (200)")
	window(0)
	window(299)
	c.quiet()
	window(300)
	c.quiet()
	window(20_000)
	c.expect("DATA 1 (8799)", `DATA 1 "" END`)
}

// A frame is no larger than the client takes.
func TestFramesAreNoLargerThanTheClientTakes(t *testing.T) {
	t.Parallel()
	big := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}
	for size, want := range map[uint32]int{minFrame: 4, 2 * minFrame: 2, 1 << 20: 1} {
		c := connect(t, options(writes(60_000)), big, http2.Setting{ID: http2.SettingMaxFrameSize, Val: size})
		c.get(1, "/")
		c.until("HEADERS 1")
		if frames := c.reads(1, 60_000); frames != want {
			t.Errorf("%d frames of %d bytes at most, want %d", frames, size, want)
		}
	}
}

// Windows that grow beyond what the RFC allows are errors: of the stream, or of the connection.
func TestWindowOverflow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		held := make(chan struct{})
		defer close(held)
		opts := options(func(http.ResponseWriter, *http.Request) { <-held })
		c := connect(t, opts)
		c.get(1, "/")
		c.must(c.framer.WriteWindowUpdate(1, maxWindow))
		c.expect("RST_STREAM 1 FLOW_CONTROL_ERROR")
		c.must(c.framer.WriteWindowUpdate(0, maxWindow))
		c.last("GOAWAY 1 FLOW_CONTROL_ERROR")

		c = connect(t, opts)
		c.get(1, "/")
		c.must(c.framer.WriteWindowUpdate(1, 1000))
		c.must(c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: maxWindow}))
		c.last("GOAWAY 1 FLOW_CONTROL_ERROR")
	})
}

// left is what the client may still send on the connection, what is saved up included.
func left(c *Conn) int { return int(c.inflow.left + c.inflow.unsent) }

// The client gets its credit back for all data that it has sent, whether or not a handler has read
// it: otherwise the window of the connection would shrink for good.
func TestCreditComesBack(t *testing.T) {
	t.Parallel()
	const whole = 4 * 64 << 10 // MaxStreams windows
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		send    func(*client)
	}{
		"read": {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, func(c *client) {
			c.data(1, text(5000), true)
		}},
		"unread": {func(http.ResponseWriter, *http.Request) {}, func(c *client) { c.data(1, text(5000), false) }},
		"after the end": {func(http.ResponseWriter, *http.Request) {}, func(c *client) {
			c.until("RST_STREAM 1 NO_ERROR")
			c.data(1, text(5000), false)
			c.until("RST_STREAM 1 STREAM_CLOSED")
		}},
		"padding": {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, func(c *client) {
			for range 30 {
				c.must(c.framer.WriteDataPadded(1, false, nil, make([]byte, 255)))
			}
			c.data(1, "", true)
		}},
		"reset": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(c *client) {
			c.data(1, text(5000), false)
			c.must(c.framer.WriteRSTStream(1, http2.ErrCodeCancel))
		}},
		"more than announced": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(c *client) {
			c.head(3, false, ":method", "POST", "content-length", "10")
			c.data(3, text(5000), false)
			c.until("RST_STREAM 3 PROTOCOL_ERROR")
			c.data(1, "", true)
			c.must(c.framer.WriteRSTStream(1, http2.ErrCodeCancel))
		}},
		"more than the window": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(c *client) {
			for range 4 {
				c.data(1, text(minFrame), false)
			}
			c.data(1, "x", false)
			c.until("RST_STREAM 1 FLOW_CONTROL_ERROR")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, options(test.handler))
			c.head(1, false, ":method", "POST")
			sent := make(chan struct{})
			test.send(c)
			go func() { // so that no write waits for room in the pipe
				defer close(sent)
				_, _ = io.Copy(io.Discard, c.net)
			}()
			c.eventually("all of the window", func() bool { return c.locked(func(c *Conn) bool { return left(c) == whole }) })
			_ = c.net.Close()
			<-sent
		})
	}
}

// Requests that are reset while they wait for a handler give back what they were sent once they
// would have had one.
func TestCreditOfRequestsThatWaited(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	opts := options(func(http.ResponseWriter, *http.Request) { <-gate })
	opts.MaxStreams = 1
	c := connect(t, opts)
	for id := uint32(1); id < 9; id += 2 {
		c.head(id, false, ":method", "POST")
		c.data(id, text(10_000), false)
		c.must(c.framer.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	c.quiet()
	close(gate)
	c.until("WINDOW_UPDATE 0")
	c.eventually("all of the window", func() bool { return c.locked(func(c *Conn) bool { return left(c) == 64<<10 }) })
}

// Credit that is too small for a WINDOW_UPDATE is saved, and sent once the client needs it,
// whichever stream has used up the rest of the window.
func TestSavedCreditIsTold(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	defer close(gate)
	opts := options(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/read" {
			_, _ = io.ReadFull(r.Body, make([]byte, 3000))
		}
		<-gate
	})
	opts.MaxStreams = 2
	opts.Window = 64 << 10
	c := connect(t, opts)
	c.head(1, false, ":method", "POST", ":path", "/read")
	c.data(1, text(3000), false)
	c.eventually("the read", func() bool { return c.locked(func(c *Conn) bool { return c.inflow.unsent == 3000 }) })
	// All windows of streams together are the connection's: only those of streams that were reset
	// can fill it.
	c.locked(func(c *Conn) bool { c.inflow.left = 20_000; return true })
	c.head(3, false, ":method", "POST")
	c.data(3, text(10_000), false)
	c.quiet()
	c.data(3, text(9_000), false)
	c.expect("WINDOW_UPDATE 0 3000")
}

// A handler that writes without end takes turns with the other streams, whatever frame size the
// client allows: a kept stream always finds room in the outbox.
func TestKeptStreamsFindRoom(t *testing.T) {
	t.Parallel()
	kept := make(chan *Stream, 1)
	c := connect(t, options(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/kept" {
			s, _ := w.(*Response).Keep(nil)
			kept <- s
			return
		}
		// the first leaves the outbox all but full, and the second is as large as a frame may be
		for b := make([]byte, outboxFull); ; {
			for _, piece := range [][]byte{b[:outboxFull-10], b} {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		}
	}), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}, http2.Setting{ID: http2.SettingMaxFrameSize,
		Val: 1 << 20})
	c.must(c.framer.WriteWindowUpdate(0, 1<<30))
	c.get(1, "/kept")
	c.expect("HEADERS 1 status=200")
	s := <-kept
	c.get(3, "/endless")
	c.until("HEADERS 3")
	full := func() bool { // the handler can go no further
		return c.locked(func(c *Conn) bool { return len(c.outbox.waiting) == 1 })
	}
	for i := range 20 {
		c.eventually("a full outbox", full)
		if n, err := offer(s, []byte("event")); n != 5 || err != nil {
			t.Fatalf("%d: %d bytes taken, %v", i, n, err)
		}
		c.until(`DATA 1 "event"`)
	}
	s.End()
	c.until(`DATA 1 "" END`)
}

// One kept stream takes no more than its share of the outbox either. Its callback runs once there
// is room again.
func TestAParkedStreamIsCalledOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	kept := make(chan *Stream, 1)
	c := connect(t, options(func(w http.ResponseWriter, _ *http.Request) {
		s, _ := w.(*Response).Keep(nil)
		kept <- s
	}), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	c.must(c.framer.WriteWindowUpdate(0, 1<<20))
	c.get(1, "/")
	c.expect("HEADERS 1 status=200")
	c.eventually("all to be sent", func() bool { return c.locked(func(c *Conn) bool { return !c.outbox.sending }) })
	s, room := <-kept, make(chan struct{}, 10)
	rings := func() { room <- struct{}{} }
	sent := 0
	for {
		n, err := offer(s, make([]byte, 100_000))
		c.must(err)
		if sent += n; n < 100_000 &&
			c.locked(func(c *Conn) bool { return c.outbox.sending && c.outbox.len() >= 2*outboxFull }) {
			break
		}
	}
	if sent > 5*outboxFull {
		t.Errorf("%d bytes were taken for a client that reads nothing", sent)
	}
	s.Park(rings)
	select {
	case <-room:
		t.Error("was told of room that is not there")
	case <-time.After(20 * time.Millisecond):
	}
	c.reads(1, sent)
	c.await(room, "room")
	s.Park(rings) // there is room already
	c.await(room, "room")
	if len(room) > 0 {
		t.Error("was told twice")
	}
}

// The callback of a parked stream runs when the client opens the window, and when the stream ends.
func TestParkForAWindow(t *testing.T) {
	t.Parallel()
	kept := make(chan *Stream, 1)
	c := connect(t, options(func(w http.ResponseWriter, _ *http.Request) {
		s, _ := w.(*Response).Keep(nil)
		kept <- s
	}), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	ends := []func(uint32, *Stream){
		func(id uint32, _ *Stream) { c.must(c.framer.WriteRSTStream(id, http2.ErrCodeCancel)) },
		func(id uint32, s *Stream) {
			s.Reset()
			s.Reset()
			c.until("RST_STREAM 3 INTERNAL_ERROR")
		},
		func(uint32, *Stream) { _ = c.net.Close() },
	}
	for i, end := range ends {
		id := uint32(2*i + 1)
		c.get(id, "/")
		c.until("HEADERS")
		s, room := <-kept, make(chan struct{}, 10)
		if n, err := offer(s, []byte("0123456789ab")); n != 10 || err != nil {
			t.Fatalf("%d bytes taken, %v", n, err)
		}
		c.until("DATA")
		s.Park(func() { room <- struct{}{} })
		c.must(c.framer.WriteWindowUpdate(id, 1))
		c.await(room, "a window")
		if n, err := offer(s, []byte("ab")); n != 1 || err != nil {
			t.Fatalf("%d bytes taken, %v", n, err)
		}
		c.until("DATA")
		s.Park(func() { room <- struct{}{} })
		end(id, s)
		c.await(room, "the end")
		if _, err := offer(s, []byte("b")); err == nil {
			t.Error("a stream that has ended takes bytes")
		}
		s.Park(func() { room <- struct{}{} })
		c.await(room, "the end, again")
		s.End()
		s.Reset()
	}
}
