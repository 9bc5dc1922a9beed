package serve

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/internal/clientconn"
	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/flowcontrol"
	"spillway/internal/memory"
	"spillway/internal/object"
	"spillway/internal/passthrough"
	"spillway/internal/watch"
)

// A LIST that finds no room has one slow answer ended, and then has its turn.
func TestSlowListMakesRoomForAnother(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			t.Parallel()
			r := rigOf(t, full(40), rigOptions{mirrors: []*object.Resource{configMaps}, stall: time.Hour,
				clients: flowcontrol.Limits{ListBytes: 5 << 20}})
			r.mirrored(configMaps)
			const target = mapsPath + "?resourceVersion=0"
			defer occupy(t, r.limiter, flowcontrol.LimitListBytes, 5<<19)() // the other half of the room
			body := openList(t, r, http2, target)
			defer body.Close()
			r.server.eviction.CrowdedRate, r.server.eviction.CrowdedPeriod = math.MaxInt, time.Millisecond
			eventually(t, "the list to be sent", func() bool { return r.server.KernelBytes() > 0 })
			time.Sleep(2 * clientconn.RecheckInterval) // a write that waits counts its time when it looks again
			refusals := make(chan int, 1)
			go func() {
				response, err := http.Get(r.url + target)
				if err != nil {
					refusals <- 0
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				refusals <- response.StatusCode
			}()
			eventually(t, "a slow LIST to be cut", func() bool {
				return r.metric("spillway_evicted_lists_total", "reason=slow_client_quota") == 1
			})
			if n := r.logs.FilterMessage(watch.EndSlowClientQuota.EvictionMessage()).Len(); n != 1 {
				t.Errorf("%d log lines", n)
			}
		})
	}
}

// openList asks for a list and reads nothing of its body.
func openList(t *testing.T, r *rig, http2 bool, target string) io.Closer {
	t.Helper()
	if http2 {
		response, err := overHTTP2(t, 4096).Get(r.tlsURL + target)
		if err != nil {
			t.Fatal(err)
		}
		return response.Body
	}
	c, err := net.Dial("tcp", r.url[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target)
	return c
}

// A LIST whose client takes nothing is logged and counted.
func TestStalledListIsLoggedAndCounted(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			t.Parallel()
			up := fakeapiserver.New(fakeapiserver.Options{})
			for i := range 80 {
				up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i), fakeapiserver.WithPadding(100_000))
			}
			r := rigOf(t, up, rigOptions{mirrors: []*object.Resource{configMaps}, stall: time.Second})
			r.mirrored(configMaps)
			body := openList(t, r, http2, mapsPath+"?resourceVersion=0")
			defer body.Close()
			eventually(t, "the LIST to be cut", func() bool {
				return r.metric("spillway_evicted_lists_total", "reason=slow_client_stalled") == 1
			})
			logged := r.logs.FilterMessage(watch.EndSlowClientStalled.EvictionMessage()).All()
			if len(logged) != 1 || logged[0].ContextMap()["verb"] != "list" ||
				logged[0].ContextMap()["reason"] != "slow_client_stalled" {
				t.Errorf("logged %v", logged)
			}
		})
	}
}

// A watch whose client takes nothing is counted as held outside, and ends once memory is short;
// one that has everything goes on.
func TestLowMemoryEvictsStalledWatches(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}, stall: time.Hour})
			r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
			r.mirrored(configMaps)
			const target = mapsPath + "?watch=1&resourceVersion=1"
			idle := r.watch(target + "&labelSelector=none")
			open := func() io.Closer {
				if !http2 {
					w := r.watch(target, rawclient.ReceiveBuffer(4096))
					w.Stall()
					return closeFunc(w.Close)
				}
				response, err := overHTTP2(t, 4096).Get(r.tlsURL + target) // its body is not read
				if err != nil {
					t.Fatal(err)
				}
				return response.Body
			}
			stalled := open()
			defer stalled.Close()
			for i := range 20 {
				r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i), fakeapiserver.WithPadding(100_000))
			}
			r.mirrored(configMaps)
			eventually(t, "a watch that is parked", func() bool { return r.server.KernelBytes() == clientconn.ParkedBytes })
			r.server.Degrade(memory.RefuseAndEvict)
			r.ended(configMaps, watch.EndSlowClientStalled, 1)
			eventually(t, "nothing is held", func() bool { return r.server.KernelBytes() == 0 })
			r.server.Degrade(memory.ShortenHistory)
			r.up.Create(fakeapiserver.ConfigMaps, "n", "last", fakeapiserver.WithLabel("none", ""))
			expect(t, idle, "ADDED n/last 23")
		})
	}
}

type closeFunc func()

func (c closeFunc) Close() error { c(); return nil }

// While little memory is left, one large answer waits for another although the limit has room for
// both; and then no more.
func TestLargeAnswersWaitForOneAnotherInLowMemory(t *testing.T) {
	t.Parallel()
	r := rigOf(t, full(10), rigOptions{mirrors: []*object.Resource{configMaps},
		clients: flowcontrol.Limits{ListBytes: 100 << 20}})
	r.mirrored(configMaps)
	r.server.Degrade(memory.RefuseAndEvict)
	release := occupy(t, r.limiter, flowcontrol.LimitListBytes, 10<<20)
	answered := make(chan int, 1)
	go func() {
		response, err := http.Get(r.url + mapsPath + "?resourceVersion=0")
		if err != nil {
			answered <- 0
			return
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		answered <- response.StatusCode
	}()
	waiting(t, r.limiter, flowcontrol.LimitListBytes, 1)
	r.server.Degrade(memory.ShortenHistory)
	if code := <-answered; code != http.StatusOK {
		t.Errorf("answered %d", code)
	}
	release()
	r.server.Degrade(memory.RefuseAndEvict)
	if list := r.list(mapsPath + "?resourceVersion=0"); list.Status != http.StatusOK { // no other request holds bytes
		t.Errorf("answered %d", list.Status)
	}
	returned(t, r.limiter)
}

// A small body is sent on while it comes where there is no room to own it; either way upstream gets
// all of it, and the room is given back.
func TestBodiesWithoutRoom(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			limiter := flowcontrol.NewLimiter(flowcontrol.Limits{BodyBytes: 1000}, flowcontrol.DefaultQueue, nil)
			fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n, err := io.Copy(io.Discard, r.Body)
				release := limiter.ReserveBody(1, true)
				if release != nil {
					release()
				}
				fmt.Fprintf(w, "%d bytes, %v, room: %v", n, err, release != nil)
			}), frontOptions{http2: http2, identity: passthrough.IdentitySelf,
				mutate: func(o *passthrough.ForwarderOptions) { o.Limiter = limiter }})
			for size, room := range map[int]bool{0: true, 1000: false, 1001: true, 100_000: true} {
				response, err := fr.client(t).Post(fr.url()+"/x", "text/plain", strings.NewReader(strings.Repeat("x", size)))
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if want := fmt.Sprintf("%d bytes, <nil>, room: %v", size, room); string(body) != want || err != nil {
					t.Errorf("%q, %v, want %q", body, err, want)
				}
				fr.awaitIdle(t)
				release := limiter.ReserveBody(1000, true)
				if release == nil {
					t.Fatalf("after %d bytes: room is not given back", size)
				}
				release()
			}
		})
	}
}

// Events that are far larger than a turn arrive whole, at a slow client, too, and delay no other
// watch.
func TestLargeEventsArriveWholeAndDelayNoOther(t *testing.T) { eachWay(t, testLargeEvents) }

func testLargeEvents(t *testing.T, goroutines bool) {
	t.Parallel()
	r := newRig(t, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}})
	for _, url := range []string{r.url, r.tlsURL} {
		r.mirrored(configMaps)
		target := fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, r.up.Revision())
		slow := rawclient.Watch(deadline(t), url, target, rawclient.ReceiveBuffer(32<<10))
		quick := rawclient.Watch(deadline(t), url, target)
		t.Cleanup(slow.Close)
		t.Cleanup(quick.Close)
		for _, w := range []*rawclient.Watcher{slow, quick} {
			if _, _, err := w.Head(deadline(t)); err != nil {
				t.Fatal(err)
			}
		}
		slow.Stall()
		var want [][]byte
		for i := range 3 {
			name := fmt.Sprintf("%d-%d", i, len(url))
			r.up.Create(fakeapiserver.ConfigMaps, "n", name, fakeapiserver.WithPadding(300_000+i))
			events := until(t, quick, func(e rawclient.WatchEvent) bool { return e.Key == "n/"+name })
			want = append(want, events[len(events)-1].Line)
		}
		slow.Resume()
		for i, line := range want {
			name := fmt.Sprintf("n/%d-%d", i, len(url))
			events := until(t, slow, func(e rawclient.WatchEvent) bool { return e.Key == name })
			if got := events[len(events)-1].Line; !bytes.Equal(got, line) {
				t.Errorf("%s: event %d has %d bytes, want %d", url, i, len(got), len(line))
			}
		}
	}
}
