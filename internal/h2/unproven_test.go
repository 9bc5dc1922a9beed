package h2

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
)

// A frame is as large as RFC 9113 lets every client send, and no larger: its bytes are held as a
// whole, from its header on.
func TestLongFramesEndTheConnection(t *testing.T) {
	t.Parallel()
	c := connect(t, options(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	}))
	c.head(1, false, ":method", "POST")
	c.data(1, text(minFrame), true)
	c.until(`DATA 1 "16384" END`)
	c.head(3, false, ":method", "POST")
	_, err := c.net.Write([]byte{0, 0x40, 1, byte(http2.FrameData), 0, 0, 0, 0, 3})
	c.must(err)
	c.until("GOAWAY 3 FRAME_SIZE_ERROR")
}

// A connection has the initial window of HTTP/2 until one of its requests has proven its identity.
func TestConnectionWindowOpensWithProof(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts, pool := bounded(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/prove" {
				w.(*Response).Prove()
				w.(*Response).Prove()
			}
		})
		c := connect(t, opts)
		c.quiet()
		c.get(1, "/")
		c.until("HEADERS 1")
		c.quiet()
		c.get(3, "/prove")
		c.expect(fmt.Sprintf("WINDOW_UPDATE 0 %d", opts.MaxStreams*opts.Window-firstWindow))
		c.until("HEADERS 3")
		c.quiet()
		c.settled(pool)
	})
}

// Bodies that nothing reads are no more than that window, however many streams they are on.
func TestUnprovenBodiesHaveOneWindow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := make(chan struct{})
		opts, pool := bounded(func(http.ResponseWriter, *http.Request) { <-gate })
		c := connect(t, opts)
		for i := range uint32(2) {
			c.head(2*i+1, false, ":method", "POST")
			c.data(2*i+1, text(minFrame), false)
			c.data(2*i+1, text(minFrame-1), false)
		}
		c.data(1, text(1), false)
		c.data(1, text(1), false)
		c.until("GOAWAY 3 FLOW_CONTROL_ERROR")
		close(gate)
		c.settled(pool)
	})
}

// What waits for a handler takes no more than half of the window, so that the bodies that handlers
// read come to their end. It is refused so that clients send it again.
func TestWaitingBodiesLeaveRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts, pool := bounded(func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n)
		})
		c := connect(t, opts)
		for _, id := range []uint32{1, 3} { // as many as have a handler
			c.head(id, false, ":method", "POST")
		}
		for _, id := range []uint32{5, 7} {
			c.head(id, false, ":method", "POST")
			c.data(id, text(minFrame), false)
		}
		c.data(7, text(1), false)
		c.until("RST_STREAM 7 REFUSED_STREAM")
		for _, id := range []uint32{1, 3} {
			for range 4 {
				c.data(id, text(minFrame/2), false)
				c.until("WINDOW_UPDATE")
			}
			c.data(id, "", true)
			c.until(fmt.Sprintf("DATA %d %q END", id, fmt.Sprint(2*minFrame)))
		}
		c.data(5, "", true)
		c.until(`DATA 5 "16384" END`)
		c.settled(pool)
		c.locked(func(c *Conn) bool {
			if left := c.inflow.left + c.inflow.unsent; left != firstWindow {
				t.Errorf("the window has %d bytes in the end, not %d", left, firstWindow)
			}
			return true
		})
	})
}

// The bytes of a long frame are let go of when it has been acted on, and frames that belong
// together still do.
func TestUnprovenConnectionsKeepNoLongFrame(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts, pool := bounded(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/prove" {
				w.(*Response).Prove()
			}
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n)
		})
		c := connect(t, opts)
		kept := func() int {
			synctest.Wait() // the reader waits for a frame
			in := c.conn.input
			if in == nil {
				return len(c.conn.partial)
			}
			return max(len(in.buffer), reflect.ValueOf(in.framer).Elem().FieldByName("readBuf").Cap())
		}
		post := func(id uint32, path string) {
			c.head(id, false, ":method", "POST", ":path", path)
			c.data(id, text(minFrame), true)
			c.until(fmt.Sprintf(`DATA %d "16384" END`, id))
		}
		post(1, "/")
		if n := kept(); n > keptFrame {
			t.Errorf("%d bytes are kept of a frame of a body", n)
		}
		for _, value := range []string{text(5000), strings.Repeat("x", 40_000)} { // in one frame, and in several
			id := c.conn.lastStreamID + 2
			c.head(id, true, "authorization", "a", "x", value)
			c.until(fmt.Sprintf("HEADERS %d", id))
			if n := kept(); n > keptFrame {
				t.Errorf("%d bytes are kept of a head of %d", n, len(value))
			}
		}
		id := c.conn.lastStreamID + 2
		c.get(id, "/prove")
		c.until(fmt.Sprintf(`DATA %d "0" END`, id))
		post(id+2, "/")
		if n := kept(); n < minFrame && !nonblocking {
			t.Errorf("%d bytes are kept for a client that is known", n)
		}
		c.settled(pool)
	})
}

// Of the answers for which its client opens no window, such a connection keeps few.
func TestUnprovenConnectionsKeepFewAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts, pool := bounded(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "an answer") })
		opts.MaxStreams, opts.Bounds.Unproven = 100, 1<<20
		c := connect(t, opts, http2.Setting{ID: http2.SettingInitialWindowSize})
		id := func(i int) uint32 { return uint32(2*i + 1) }
		for i := range unprovenRemainders {
			c.get(id(i), "/")
			c.until(fmt.Sprintf("HEADERS %d", id(i)))
			synctest.Wait() // the answer is kept after its head was sent
		}
		c.get(id(unprovenRemainders), "/")
		c.until(fmt.Sprintf("RST_STREAM %d ENHANCE_YOUR_CALM", id(unprovenRemainders)))
		c.must(c.framer.WriteWindowUpdate(1, 100))
		c.until(`DATA 1 "an answer" END`)
		c.get(id(unprovenRemainders+1), "/")
		c.until(fmt.Sprintf("HEADERS %d", id(unprovenRemainders+1)))
		c.quiet()
		synctest.Wait()
		c.locked(func(c *Conn) bool {
			if n := len(c.remainders.streams); n != unprovenRemainders {
				t.Errorf("%d answers are kept", n)
			}
			return true
		})
		for i := range unprovenRemainders + 2 {
			c.must(c.framer.WriteRSTStream(id(i), http2.ErrCodeCancel))
		}
		c.settled(pool)
	})
}
