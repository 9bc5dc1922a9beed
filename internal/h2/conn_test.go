package h2

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// The first frame of a server is SETTINGS, even if GoAway is called before it is sent.
func TestTheFirstFrameIsSettings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := silent(t, options(nil))
		c.conn.GoAway()
		c.expect("SETTINGS", fmt.Sprintf("WINDOW_UPDATE 0 %d", 4*64<<10-firstWindow))
		c.last("GOAWAY 0 NO_ERROR")
	})
}

// A client must begin as the RFC says.
func TestBadBeginnings(t *testing.T) {
	t.Parallel()
	c := silent(t, options(nil))
	_, _ = io.WriteString(c.net, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") // fails when the server has seen enough
	c.await(c.served, "Serve")

	for name, begin := range map[string]func(*client) error{
		"a ping":             func(c *client) error { return c.framer.WritePing(false, [8]byte{}) },
		"an acknowledgement": func(c *client) error { return c.framer.WriteSettingsAck() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := silent(t, options(nil))
				_, err := io.WriteString(c.net, http2.ClientPreface)
				c.must(err)
				c.must(begin(c))
				c.until("WINDOW_UPDATE")
				c.last("GOAWAY 0 PROTOCOL_ERROR")
			})
		})
	}
}

// What TLS must be is said in a GOAWAY.
func TestWeakTLSIsRefusedByGoAway(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		state *tls.ConnectionState
		weak  bool
	}{
		{nil, false}, {&tls.ConnectionState{Version: tls.VersionTLS13}, false},
		{&tls.ConnectionState{Version: tls.VersionTLS11}, true},
		{&tls.ConnectionState{Version: tls.VersionTLS12, CipherSuite: tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, false},
		{&tls.ConnectionState{Version: tls.VersionTLS12, CipherSuite: tls.TLS_RSA_WITH_AES_128_GCM_SHA256}, true},
		{&tls.ConnectionState{Version: tls.VersionTLS12, CipherSuite: tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}, true},
	} {
		if why := weakTLS(test.state); (why != "") != test.weak {
			t.Errorf("%+v: %q", test.state, why)
		}
	}
}

// GOAWAY names the last stream that is answered: that one and those before go on, those after it
// are not heard, and the connection ends after the last.
func TestGoAwayNamesTheLastAnsweredStream(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	c := connect(t, options(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			_, _ = io.ReadAll(r.Body)
		}
		<-gate
	}))
	c.head(1, false, ":method", "POST")
	c.get(3, "/")
	c.quiet()
	c.conn.GoAway()
	c.conn.GoAway()
	c.expect("GOAWAY 3 NO_ERROR")
	c.get(5, "/")
	c.head(7, false, ":method", "POST")
	c.data(7, text(5000), false) // is given back
	c.expect("WINDOW_UPDATE 0 5000")
	c.raw(9, true, "Malformed", "")
	c.expect("RST_STREAM 9 PROTOCOL_ERROR")
	c.data(1, "", true)
	close(gate)
	c.until("HEADERS")
	c.until("HEADERS")
	c.over()
}

// The last answers reach a client that takes its time for them, after GOAWAY too.
func TestGoAwayWaitsForTheLastAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, options(writes(50_000)))
		c.conn.GoAway()
		c.expect("GOAWAY 0 NO_ERROR")

		c = connect(t, options(writes(50_000)))
		c.get(1, "/")
		c.until("HEADERS 1")
		c.eventually("the end of the stream",
			func() bool { return c.locked(func(c *Conn) bool { return len(c.streams) == 0 }) })
		c.conn.GoAway()
		time.Sleep(goAwayTimeout + goAwayTimeout/5) // the client does not read
		c.reads(1, 50_000)
		c.until(`DATA 1 "" END`)
		c.until("GOAWAY 1 NO_ERROR")
		c.over()
	})
}

// A client that reads nothing after GOAWAY does not keep its connection by asking for more.
func TestGoAwayOfASilentReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, options(nil))
		c.must(c.framer.WritePing(false, [8]byte{}))
		c.conn.GoAway()
		for end := time.Now().Add(2 * lingerTimeout); time.Now().Before(end); time.Sleep(time.Second) {
			_ = c.framer.WritePing(false, [8]byte{})
		}
		if c.locked(func(c *Conn) bool { return c.err == nil }) {
			t.Error("the connection has not ended")
		}
	})
}

// A client that says that it leaves is let go.
func TestGoAwayOfTheClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, options(func(http.ResponseWriter, *http.Request) {}))
		c.must(c.framer.WriteGoAway(0, http2.ErrCodeNo, nil))
		c.last("GOAWAY 0 NO_ERROR")
	})
}

// GOAWAY reports a connection error before the connection closes, whatever frames arrive meanwhile.
func TestConnectionErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		send func(*client)
		want string
	}{
		"data on an idle stream": {func(c *client) { c.data(1, "x", false) }, "GOAWAY 0 PROTOCOL_ERROR"},
		"a reset of an idle one": {func(c *client) { c.must(c.framer.WriteRSTStream(1, http2.ErrCodeCancel)) },
			"GOAWAY 0 PROTOCOL_ERROR"},
		"a window of an idle one": {func(c *client) { c.must(c.framer.WriteWindowUpdate(1, 1)) }, "GOAWAY 0 PROTOCOL_ERROR"},
		"an even stream":          {func(c *client) { c.get(2, "/") }, "GOAWAY 0 PROTOCOL_ERROR"},
		"an acknowledgement":      {func(c *client) { c.must(c.framer.WriteSettingsAck()) }, "GOAWAY 0 PROTOCOL_ERROR"},
		"a frame that is too long": {func(c *client) {
			_ = c.framer.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 64<<10+1))
		}, "GOAWAY 0 FRAME_SIZE_ERROR"},
		"a setting that is wrong": {func(c *client) {
			c.must(c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}))
		}, "GOAWAY 0 FLOW_CONTROL_ERROR"},
		"a setting twice": {func(c *client) {
			c.must(c.framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush},
				http2.Setting{ID: http2.SettingEnablePush}))
		}, "GOAWAY 0 PROTOCOL_ERROR"},
		"a push": {func(c *client) {
			c.must(c.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true}))
		}, "GOAWAY 0 PROTOCOL_ERROR"},
		"bad compression": {func(c *client) {
			c.must(c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff},
				EndHeaders: true}))
		}, "GOAWAY 0 COMPRESSION_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := connect(t, options(func(http.ResponseWriter, *http.Request) { t.Error("a request was served") }))
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					c.framer.AllowIllegalWrites = true
					test.send(c)
					_ = c.framer.WritePing(false, [8]byte{})
					_ = c.framer.WriteData(1, false, []byte("x"))
				}()
				c.last(test.want)
				c.await(sent, "what is sent last")
			})
		})
	}
}

// Streams that were answered or reset stay that, and a stream that goes wrong does so alone.
func TestAStreamErrorEndsItsStreamAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, options(func(http.ResponseWriter, *http.Request) {}))
		c.get(5, "/")
		c.expect("HEADERS 5 status=200 content-length=0 END")
		c.data(5, "x", false)
		c.expect("RST_STREAM 5 STREAM_CLOSED")
		c.data(3, "x", false) // was skipped
		c.expect("RST_STREAM 3 STREAM_CLOSED")
		c.must(c.framer.WriteWindowUpdate(5, 1))
		c.must(c.framer.WriteRSTStream(5, http2.ErrCodeCancel))
		c.framer.AllowIllegalWrites = true
		c.must(c.framer.WriteWindowUpdate(5, 0))
		c.expect("RST_STREAM 5 PROTOCOL_ERROR")
		c.must(c.framer.WritePriority(7, http2.PriorityParam{StreamDep: 7}))
		c.expect("RST_STREAM 7 PROTOCOL_ERROR")
		c.get(9, "/")
		c.expect("HEADERS 9 status=200 content-length=0 END")
		c.get(7, "/")
		c.last("GOAWAY 9 PROTOCOL_ERROR")
	})
}

// No more handlers run than streams are allowed, however fast a client resets its streams. A few
// more requests wait; after those, the connection ends with ENHANCE_YOUR_CALM.
func TestRapidResetsStartNoMoreHandlersThanStreams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var running, most atomic.Int32
		gate := make(chan struct{})
		opts := options(func(http.ResponseWriter, *http.Request) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-gate
			running.Add(-1)
		})
		c := connect(t, opts)
		reset := func(id uint32) {
			c.get(id, "/")
			c.must(c.framer.WriteRSTStream(id, http2.ErrCodeCancel))
		}
		const all = 4 + 4*waitingFactor
		for i := range uint32(all) {
			reset(2*i + 1)
		}
		c.quiet()
		c.get(2*all+1, "/")
		c.expect(fmt.Sprintf("GOAWAY %d ENHANCE_YOUR_CALM", 2*all+1))
		close(gate)
		c.last()
		if n := most.Load(); n > 4 {
			t.Errorf("%d handlers ran at a time", n)
		}
	})
}

// Requests that wait for a handler are served in their order, but for those that were reset
// meanwhile.
func TestWaitingForAHandler(t *testing.T) {
	t.Parallel()
	paths, gate := make(handlerMessages, 10), make(chan struct{})
	opts := options(func(_ http.ResponseWriter, r *http.Request) {
		paths <- r.URL.Path
		<-gate
	})
	opts.MaxStreams = 2
	c := connect(t, opts)
	for _, id := range []uint32{1, 3, 5, 7, 9} {
		c.get(id, fmt.Sprint("/", id))
		if id < 7 {
			c.must(c.framer.WriteRSTStream(id, http2.ErrCodeCancel))
		}
	}
	if first, second := <-paths, <-paths; first+second != "/1/3" && first+second != "/3/1" {
		t.Errorf("%s and %s are served first", first, second)
	}
	c.get(11, "/11")
	c.expect("RST_STREAM 11 PROTOCOL_ERROR")
	gate <- struct{}{}
	c.told(paths, "/7")
	gate <- struct{}{}
	c.told(paths, "/9")
	close(gate)
	c.until("HEADERS")
	c.until("HEADERS")
	c.eventually("the last handler's return",
		func() bool { return c.locked(func(c *Conn) bool { return c.handlers.running == 0 }) })
}

// A client that causes replies and does not read them is disconnected before too many are queued.
func TestAFloodOfUnreadRepliesEndsTheConnection(t *testing.T) {
	t.Parallel()
	floods := map[string]func(f *http2.Framer, i uint32) error{
		"pings":    func(f *http2.Framer, _ uint32) error { return f.WritePing(false, [8]byte{}) },
		"settings": func(f *http2.Framer, _ uint32) error { return f.WriteSettings() },
		"resets": func(f *http2.Framer, i uint32) error { // of what is malformed
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, EndStream: true, EndHeaders: true})
		},
	}
	unproven, _ := bounded(nil)
	for who, opts := range map[string]Options{"any client": options(nil), "a client that has proven nothing": unproven} {
		for name, frame := range floods {
			t.Run(who+", "+name, func(t *testing.T) {
				t.Parallel()
				c := connect(t, opts)
				flood := bufio.NewWriterSize(c.net, 16<<10)
				framer := http2.NewFramer(flood, nil)
				for i := range uint32(2 * outboxFlood / 9) { // the kernel takes some of the answers
					if frame(framer, i) != nil {
						c.await(c.served, "Serve")
						return
					}
				}
				t.Error("the flood was taken")
			})
		}
	}
}

// Heads of answers wait for room too: a client that asks and never reads keeps its handlers
// waiting, and nothing piles up.
func TestHeadsOfUnreadAnswersWaitForRoom(t *testing.T) {
	t.Parallel()
	c := connect(t, options(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Long", text(4000)) }))
	for i := range uint32(200) {
		c.head(2*i+1, true, ":method", "HEAD")
		if c.eventuallyIdle(); c.locked(func(c *Conn) bool { return len(c.streams) == int(c.opts.MaxStreams) }) {
			break
		}
	}
	if c.locked(func(c *Conn) bool { return c.outbox.len() > 2*outboxFull }) {
		t.Error("heads pile up")
	}
	for range c.conn.opts.MaxStreams {
		c.until("HEADERS")
	}
}

// eventuallyIdle waits until no handler has anything to do but to wait.
func (c *client) eventuallyIdle() {
	c.Helper()
	c.eventually("the handlers to wait", func() bool {
		return c.locked(func(c *Conn) bool { return int(c.handlers.running) == len(c.outbox.waiting) })
	})
}

// A head that has no end is refused before it is large.
func TestFloodOfContinuations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, options(nil))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			block := []byte(strings.Repeat("\x00\x01a\x01b", 1000))
			_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block})
			for range 1000 {
				if c.framer.WriteContinuation(1, false, block) != nil {
					return
				}
			}
		}()
		c.last("GOAWAY 0 PROTOCOL_ERROR")
		c.await(ended, "the end of the flood")
	})
}

// The server pings a silent client. Without an answer it closes the connection, and its streams
// end.
func TestASilentClientIsPingedAndThenClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := options(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		opts.Quiet, opts.Pong = 20*time.Millisecond, 10*time.Second
		c := connect(t, opts)
		c.get(1, "/")
		for range 3 {
			frame, err := c.framer.ReadFrame()
			c.must(err)
			ping, ok := frame.(*http2.PingFrame)
			if !ok || ping.IsAck() {
				t.Fatalf("%v", frame)
			}
			c.must(c.framer.WritePing(true, ping.Data))
		}
		_ = c.net.Close()

		opts.Pong = 20 * time.Millisecond
		c = connect(t, opts)
		c.get(1, "/")
		c.over("PING")
	})
}

// A client that wants nothing is let go, however often it says that it is there; one that has a
// stream is not.
func TestAnIdleConnectionIsClosedDespitePings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := make(chan struct{})
		opts := options(func(http.ResponseWriter, *http.Request) { <-gate })
		opts.Idle = 50 * time.Millisecond
		c := connect(t, opts)
		c.must(c.framer.WritePing(false, [8]byte([]byte("anything"))))
		c.until("GOAWAY 0 NO_ERROR")
		c.last()

		opts.Idle = 200 * time.Millisecond
		c = connect(t, opts)
		c.get(1, "/")
		time.Sleep(2 * opts.Idle)
		c.quiet()
		close(gate)
		c.expect("HEADERS 1 status=200 content-length=0 END", "GOAWAY 1 NO_ERROR")
		c.last()
	})
}

// Close ends everything at once, also before there is anything, and twice.
func TestCloseEndsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	c := connect(t, options(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(ended)
	}))
	c.get(1, "/")
	c.quiet()
	c.conn.Close()
	c.conn.Close()
	c.conn.GoAway()
	c.over()
	c.await(ended, "the end of the context")

	c = silent(t, options(nil))
	c.conn.Close()
	c.await(c.served, "Serve")
}
