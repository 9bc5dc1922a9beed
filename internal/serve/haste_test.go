package serve

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/kubetest"
	"spillway/internal/object"
)

// guardLooks is how often the guard of the memory looks.
const guardLooks = 100 * time.Millisecond

// Who takes nothing, or little of what pins old state, is let go of soon once the server is in haste: also he whose write has begun before.
func TestHasteOfWrites(t *testing.T) {
	const stall = 10 * time.Minute
	for _, c := range []struct {
		name    string
		pins    bool
		n       int // bytes that the client takes at once, each second
		hurried bool
		want    error
	}{
		{"nothing", false, 0, true, errStalled},
		{"nothing, with time", false, 0, false, nil},
		{"a byte is progress", false, 1, true, nil},
		{"a thin line, pins", true, 40_000, true, endError(EndSlow)},
		{"a thin line, pins, with time", true, 40_000, false, nil},
		{"the rate that is asked for then", true, 2 * hastyRate, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := pipe(t)
				if c.n > 0 {
					go drip(far, c.n, time.Second)
				}
				h := &haste{}
				paced := &conn{Conn: near, haste: h}
				if err := paced.setPace(stall, pinnedIf(c.pins)); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() {
					_, err := paced.Write(make([]byte, 100<<20))
					ended <- err
				}()
				time.Sleep(3 * time.Second)
				h.hurried.Store(c.hurried)
				for range int((hastyStall + 2*looksAgain) / guardLooks) {
					time.Sleep(guardLooks)
					if c.hurried {
						(&Server{haste: h}).EndSlow()
					}
				}
				synctest.Wait()
				select {
				case err := <-ended:
					if !errors.Is(err, c.want) || c.want == nil {
						t.Errorf("ended with %v, want %v", err, c.want)
					}
				default:
					if c.want != nil {
						t.Error("it goes on")
					}
				}
			})
		})
	}
}

// Who takes at once whatever there is goes on, however long it takes to make: that is not the client's doing.
func TestHasteIsWithClientsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(t)
		go func() { _, _ = io.Copy(io.Discard, far) }()
		h := &haste{}
		h.hurried.Store(true)
		paced := &conn{Conn: near, haste: h}
		if err := paced.setPace(10*time.Minute, 1); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			time.Sleep(2 * hastyStall) // so long it takes to be made
			(&Server{haste: h}).EndSlow()
			if _, err := paced.Write(make([]byte, 64<<10)); err != nil {
				t.Fatalf("piece %d: %v", i, err)
			}
		}
	})
}

// A watch whose client takes nothing is counted as held outside, and ends when the server gets into haste; one that has everything goes on.
func TestHasteOfWatches(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}, stall: time.Hour})
			r.up.Create(kubetest.ConfigMaps, "n", "a")
			r.mirrored(configMaps)
			const target = mapsPath + "?watch=1&resourceVersion=1"
			idle := r.watch(target + "&labelSelector=none")
			open := func() io.Closer {
				if !http2 {
					w := r.watch(target, kubetest.ReceiveBuffer(4096))
					w.Stall()
					return closer(w.Close)
				}
				response, err := overHTTP2(t, 4096).Get(r.tlsURL + target) // whose body nobody reads
				if err != nil {
					t.Fatal(err)
				}
				return response.Body
			}
			stalled := open()
			defer stalled.Close()
			for i := range 20 {
				r.up.Create(kubetest.ConfigMaps, "n", fmt.Sprint(i), kubetest.WithPadding(100_000))
			}
			r.mirrored(configMaps)
			eventually(t, "a watch that is parked", func() bool { return r.server.Outside() == parkedOutside })
			r.server.Hasten(true)
			r.ended(configMaps, EndStalled, 1)
			eventually(t, "nothing is held", func() bool { return r.server.Outside() == 0 })
			r.server.Hasten(false)
			r.up.Create(kubetest.ConfigMaps, "n", "last", kubetest.WithLabel("none", ""))
			expect(t, idle, "ADDED n/last 23")
		})
	}
}

type closer func()

func (c closer) Close() error { c(); return nil }

// While little memory is left, one large answer waits for another although the limit has room for both; and then no more.
func TestEconomy(t *testing.T) {
	t.Parallel()
	r := rigOf(t, full(10), rigOptions{mirrors: []*object.Resource{configMaps}, clients: Limits{ListBytes: 100 << 20}})
	r.mirrored(configMaps)
	r.server.Economize(true)
	release := occupy(t, r.limiter.lists, 10<<20)
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
	waiting(t, r.limiter.lists, 1)
	r.server.Economize(false)
	if code := <-answered; code != http.StatusOK {
		t.Errorf("answered %d", code)
	}
	release()
	r.server.Economize(true)
	if list := r.list(mapsPath + "?resourceVersion=0"); list.Status != http.StatusOK { // nobody else has one
		t.Errorf("answered %d", list.Status)
	}
	r.limiter.returned(t)
}

// A small body is sent on while it comes where there is no room to own it; either way upstream gets all of it, and the room is given back.
func TestBodiesWithoutRoom(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			limiter := NewLimiter(Limits{BodyBytes: 1000}, nil)
			fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n, err := io.Copy(io.Discard, r.Body)
				fmt.Fprintf(w, "%d bytes, %v, %d held", n, err, limiter.bodies.held.Load())
			}), frontOptions{http2: http2, mutate: func(o *ForwarderOptions) { o.Limiter = limiter }})
			for size, held := range map[int]int{0: 0, 1000: 1000, 1001: 0, 100_000: 0} {
				response, err := fr.client(t).Post(fr.url()+"/x", "text/plain", strings.NewReader(strings.Repeat("x", size)))
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if want := fmt.Sprintf("%d bytes, <nil>, %d held", size, held); string(body) != want || err != nil {
					t.Errorf("%q, %v, want %q", body, err, want)
				}
				fr.awaitIdle(t)
				if n := limiter.bodies.held.Load(); n != 0 {
					t.Errorf("after %d bytes: %d are held", size, n)
				}
			}
		})
	}
}

// Who takes no bookmarks and has seen nothing for long stays near the head all the same: when his feed lets go of him, since memory is short, the log
// still has what comes next.
func TestQuietStreamKeepsItsPlace(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=100&timeoutSeconds=3600&fieldSelector=metadata.name%3Dz")
		p.gets()
		for i := range 20 {
			time.Sleep(time.Minute)
			w.set(fmt.Sprintf("a/x %d", 101+i))
			synctest.Wait()
			w.resource().Shorten(true)
		}
		if floor := w.resource().Log().Floor(); floor <= 100 {
			t.Fatalf("history still reaches back to %d", floor)
		}
		w.source.Hub.Economize(true)
		synctest.Wait()
		w.set("a/z 200")
		p.gets("ADDED a/z 200")
	})
}
