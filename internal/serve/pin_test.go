package serve

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/kubetest"
	"spillway/internal/object"
)

// While memory is short the most expensive of the slow answers ends first; a fast one never does.
func TestMostExpensivePinEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &haste{}
		pinned := func(bytes int64, taken int) *pin {
			p := &pin{bytes: bytes}
			p.add(taken, time.Minute)
			h.pin(p)
			return p
		}
		fast := pinned(1<<40, 60*hastyRate)
		var slow []*pin
		for i := range 32 {
			slow = append(slow, pinned(int64(i+1), 60*hastyRate-1))
		}
		(&Server{haste: h}).EndSlow()
		for i, p := range slow {
			if condemned := p.sentence() != nil; condemned != (i >= 30) {
				t.Errorf("after the first look the pin of %d bytes is condemned: %v", p.bytes, condemned)
			}
		}
		for range 100 {
			(&Server{haste: h}).EndSlow()
		}
		for _, p := range slow {
			if p.sentence() != endError(EndSlow) {
				t.Errorf("the pin of %d bytes goes on while memory is short", p.bytes)
			}
		}
		if fast.sentence() != nil {
			t.Error("a client that is fast enough was condemned")
		}
		if h.unpin(fast); len(h.pins.all) != 0 {
			t.Errorf("%d pins are left", len(h.pins.all))
		}
	})
}

// A LIST that finds no room has one slow answer ended, and then has its turn.
func TestSlowListMakesRoomForAnother(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			t.Parallel()
			r := rigOf(t, full(40), rigOptions{mirrors: []*object.Resource{configMaps}, stall: time.Hour,
				clients: Limits{ListBytes: 5 << 20}})
			r.mirrored(configMaps)
			const target = mapsPath + "?resourceVersion=0"
			defer occupy(t, r.limiter.lists, 5<<19)() // the other half of the room
			body := openList(t, r, http2, target)
			defer body.Close()
			eventually(t, "the list to wait for its client", func() bool { return delay(r.server.haste) == 1 })
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
				return r.metric("spillway_lists_cut_total", "reason=crowded") == 1
			})
			if n := r.logs.FilterMessage(cutWords[EndCrowded]).Len(); n != 1 {
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

// delay makes all pins wait for their clients for long, and tells how many there are.
func delay(h *haste) int {
	h.pins.mu.Lock()
	defer h.pins.mu.Unlock()
	for p := range h.pins.all {
		p.add(0, time.Hour)
	}
	return len(h.pins.all)
}

// A LIST whose client takes nothing is logged and counted.
func TestStalledListIsLoggedAndCounted(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			t.Parallel()
			up := kubetest.New(kubetest.Options{})
			for i := range 80 {
				up.Create(kubetest.ConfigMaps, "n", fmt.Sprint(i), kubetest.WithPadding(100_000))
			}
			r := rigOf(t, up, rigOptions{mirrors: []*object.Resource{configMaps}, stall: time.Second})
			r.mirrored(configMaps)
			body := openList(t, r, http2, mapsPath+"?resourceVersion=0")
			defer body.Close()
			eventually(t, "the LIST to be cut", func() bool {
				return r.metric("spillway_lists_cut_total", "reason=stalled") == 1
			})
			logged := r.logs.FilterMessage(cutWords[EndStalled]).All()
			if len(logged) != 1 || logged[0].ContextMap()["verb"] != "list" || logged[0].ContextMap()["reason"] != "stalled" {
				t.Errorf("logged %v", logged)
			}
		})
	}
}
