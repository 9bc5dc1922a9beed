package h2

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// bounded are options with small bounds, and what their pool holds.
func bounded(h http.HandlerFunc) (Options, *atomic.Int64) {
	pool := &atomic.Int64{}
	opts := options(h)
	opts.MaxStreams, opts.MaxHeader = 100, 1<<20
	opts.Bounds = &Bounds{
		Head: 16 << 10, Unproven: 16 << 10, Proven: 64 << 10, Handlers: 2, Arrival: 15 * time.Second, Large: 10 * time.Second,
		Reserve: func(_ netip.Addr, n int64) bool {
			if pool.Add(n) > 4<<20 {
				pool.Add(-n)
				return false
			}
			return true
		},
		Release:     func(_ netip.Addr, n int64) { pool.Add(-n) },
		Credentials: func(r *http.Request) bool { return r.Header.Get("Authorization") != "" },
		Refuse:      http.HandlerFunc(sendTooLarge),
	}
	opts.Stall = func() time.Duration { return 5 * time.Second }
	return opts, pool
}

// crumbs are fields that are a byte each on the wire, but for the first.
func crumbs(name string, n int) (fields []string) {
	for range n {
		fields = append(fields, name, strings.Repeat("c", 3000))
	}
	return fields
}

// settled checks that the connection holds nothing any more.
func (c *client) settled(pool *atomic.Int64) {
	c.Helper()
	c.eventually("the end of all claims", func() bool {
		return c.locked(func(c *Conn) bool {
			return c.ledger.claimedBytes == 0 && c.ledger.large == 0 && len(c.remainders.streams) == 0
		}) && pool.Load() == 0
	})
}

// What the head of a request holds is given back, too, if so many wait that it is not served.
func TestRequestBeyondTheWaitingGivesItsHeadBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := make(chan struct{})
		opts, pool := bounded(func(http.ResponseWriter, *http.Request) { <-gate })
		c := connect(t, opts)
		defer close(gate)
		all := opts.Bounds.Handlers + unprovenWaiting
		id := func(i uint32) uint32 { return 2*i + 1 }
		for i := range all {
			c.get(id(i), "/")
			c.must(c.framer.WriteRSTStream(id(i), http2.ErrCodeCancel))
		}
		c.quiet()
		c.block.Reset()
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "host"}, {":path", "/"},
			{"authorization", "a"}, {"x", strings.Repeat("~", 30_000)}} {
			c.must(c.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
		}
		block := c.block.Bytes() // in frames of which no first ones use up what the connection has of its own
		c.must(c.framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id(all), BlockFragment: block[:4000], EndStream: true,
		}))
		c.must(c.framer.WriteContinuation(id(all), false, block[4000:20_000]))
		c.must(c.framer.WriteContinuation(id(all), true, block[20_000:]))
		c.expect(fmt.Sprintf("GOAWAY %d ENHANCE_YOUR_CALM", id(all)))
		if pool.Load() != 0 {
			t.Error("the head holds a part of the pool")
		}
	})
}

func TestLargeHeadsNeedCredentials(t *testing.T) {
	t.Parallel()
	opts, pool := bounded(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, len(r.Header.Get("Cookie"))) })
	c := connect(t, opts)
	c.head(1, true, crumbs("cookie", 50)...)
	c.until("GOAWAY 1 NO_ERROR")
	c.until("HEADERS 1 status=431")
	c.settled(pool)

	c = connect(t, opts)
	c.head(1, true, append(crumbs("cookie", 50), "authorization", "a")...)
	c.until("HEADERS 1 status=200")
	c.until(`DATA 1 "150098" END`)
	c.settled(pool)
}

// A connection that has proven nothing has one head refused. Heads after the GOAWAY are decoded
// only as far as the state of the compression needs: a trailer of an earlier stream refers to their
// fields.
func TestUnprovenConnectionsEndWithARefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		trailer := make(chan string, 1)
		opts, pool := bounded(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			trailer <- r.Trailer.Get("X")
		})
		opts.Bounds.Unproven = 32 << 10 // room beside the first stream
		c := connect(t, opts)
		c.head(1, false, ":method", "POST", "trailer", "x")
		c.head(3, true, crumbs("cookie", 50)...)
		c.until("GOAWAY 3 NO_ERROR")
		c.until("HEADERS 3 status=431")
		c.until("DATA 3")
		for i := range uint32(50) {
			c.head(5+2*i, true, append(crumbs("cookie", 50), "x", "later")...)
		}
		c.quiet()
		c.locked(func(c *Conn) bool {
			if len(c.streams) != 1 || c.ledger.large > 0 {
				t.Errorf("%d streams are open, %d heads are large", len(c.streams), c.ledger.large)
			}
			return true
		})
		c.raw(1, true, "x", "later")
		c.until("HEADERS 1 status=200")
		if got := <-trailer; got != "later" {
			t.Errorf("the trailer is %q", got)
		}
		c.settled(pool)
	})
}

// A kept stream whose request ends after its handler has returned holds nothing of it then: neither
// a large trailer's claim nor what the handler needed.
func TestRequestThatEndsAfterItsHandlerHoldsNothing(t *testing.T) {
	for name, end := range map[string]func(*client){
		"by a trailer": func(c *client) { c.raw(1, true, crumbs("x", 20)...) },
		"by data":      func(c *client) { c.must(c.framer.WriteData(1, true, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts, pool := bounded(func(w http.ResponseWriter, _ *http.Request) {
					w.(*Response).Prove()
					_, _ = w.(*Response).Keep(nil)
				})
				c := connect(t, opts)
				c.head(1, false, "content-length", "0", "trailer", "x", "authorization", "a")
				c.until("HEADERS 1 status=200")
				c.eventually("the handler's return",
					func() bool { return c.locked(func(c *Conn) bool { return c.handlers.running == 0 }) })
				end(c)
				c.eventually("the request's end",
					func() bool { return c.locked(func(c *Conn) bool { return c.streams[1].exchange == nil }) })
				c.settled(pool)
				c.must(c.framer.WriteWindowUpdate(1, 100))
				c.must(c.framer.WriteRSTStream(1, http2.ErrCodeCancel))
				c.quiet()
			})
		})
	}
}

// Malformed heads are decoded up to a number of bytes; then the connection receives GOAWAY.
func TestUnprovenConnectionsEndWithUnservedHeads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts, pool := bounded(func(http.ResponseWriter, *http.Request) { t.Error("a malformed request was served") })
		c := connect(t, opts)
		most := unservedHeads * int(opts.Bounds.Head) / 10_000
		answered := 0
		for ; answered <= most; answered++ {
			c.head(uint32(2*answered+1), true, "x", text(10_000), "Malformed", "")
			if !strings.HasPrefix(c.next(), "RST_STREAM") {
				break
			}
		}
		if answered < unservedHeads || answered > most {
			t.Errorf("%d malformed heads were decoded, not %d to %d", answered, unservedHeads, most)
		}
		c.settled(pool)
	})
}

// Handlers of one that has proven nothing are few, what waits holds no more than its allowance, and
// what exceeds that is refused so that clients send it again.
func TestUnprovenConnectionsHoldLittle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := make(chan struct{})
		opts, pool := bounded(func(http.ResponseWriter, *http.Request) { <-gate })
		c := connect(t, opts)
		for i := range uint32(50) {
			c.head(2*i+1, true, "x", fmt.Sprint(i))
		}
		c.until("RST_STREAM 99 REFUSED_STREAM")
		c.locked(func(c *Conn) bool {
			if c.handlers.running != 2 || c.ledger.claimedBytes > 16<<10 {
				t.Errorf("%d handlers run, %d bytes are held", c.handlers.running, c.ledger.claimedBytes)
			}
			return true
		})
		close(gate)
		c.settled(pool)
	})
}

// Once a request has proven its identity, the requests that wait are handled, and more may arrive.
func TestProvenConnectionsHaveMore(t *testing.T) {
	t.Parallel()
	gate, running := make(chan struct{}), make(chan struct{}, 100)
	opts, pool := bounded(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/prove" {
			w.(*Response).Prove()
		}
		running <- struct{}{}
		<-gate
	})
	c := connect(t, opts)
	for _, path := range []string{"/", "/prove", "/", "/", "/"} {
		c.get(map[bool]uint32{true: c.conn.lastStreamID + 2, false: 1}[c.conn.lastStreamID > 0], path)
		if path == "/prove" {
			c.until("WINDOW_UPDATE 0")
		}
		c.quiet()
	}
	for range 5 {
		c.await(running, "a handler")
	}
	close(gate)
	c.settled(pool)
}

// A small answer that its client does not take keeps no handler, and its stream is reset when that
// lasts.
func TestAnswersThatAreNotTakenEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts, pool := bounded(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("an answer")) })
		c := connect(t, opts, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		c.get(1, "/")
		c.get(3, "/")
		c.until("HEADERS")
		c.until("HEADERS")
		c.eventually("the handlers' return", func() bool {
			return c.locked(func(c *Conn) bool { return c.handlers.running == 0 && len(c.remainders.streams) == 2 })
		})
		c.must(c.framer.WriteWindowUpdate(3, 3))
		c.expect(`DATA 3 "an "`)
		c.must(c.framer.WriteWindowUpdate(3, 100))
		c.expect(`DATA 3 "answer" END`, "RST_STREAM 1 CANCEL")
		c.settled(pool)
	})
}

// A head that does not end is given up, and what it held with it.
func TestHeadsMustArrive(t *testing.T) {
	for name, size := range map[string]int{"ordinary": 10, "large": 40_000} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts, pool := bounded(nil)
				c := connect(t, opts)
				c.block.Reset()
				block := []byte{0x00, 0x01, 'a', 0x7f, 0xff, 0xff, 0x02} // a literal of some tens of kB
				c.must(c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block}))
				for n := 0; n < size; n += 10_000 {
					c.must(c.framer.WriteContinuation(1, false, make([]byte, min(size-n, 10_000))))
				}
				c.over()
				c.settled(pool)
			})
		})
	}
}

func TestEmptyContinuationsEnd(t *testing.T) {
	t.Parallel()
	opts, _ := bounded(nil)
	c := connect(t, opts)
	c.must(c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}))
	for range emptyFrameLimit + 1 {
		c.must(c.framer.WriteContinuation(1, false, nil))
	}
	c.last("GOAWAY 0 ENHANCE_YOUR_CALM")
}

// The decoder keeps room for what it was given of a string without its end, until the connection
// ends: it is given none.
func TestLongFieldsLeaveNothing(t *testing.T) {
	const connections, size = 20, 200_000
	used := func() int64 {
		runtime.GC()
		runtime.GC() // what pools have
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before := used()
	for range connections {
		opts, pool := bounded(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, len(r.Header.Get("Long"))) })
		c := connect(t, opts)
		c.head(1, true, "long", strings.Repeat("~", size), "authorization", "a")
		c.until(`DATA 1 "200000" END`)
		c.settled(pool)
		c.block, c.enc = bytes.Buffer{}, nil
	}
	if more := used() - before; more > connections*size/2 {
		t.Errorf("%d connections keep %d bytes", connections, more)
	}
}
